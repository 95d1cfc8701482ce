// Draws the next token from one row of logits, and says with which probability it was drawn.
//
//   l ← repetition penalty (l > 0 ? l/ρ : l·ρ for every id of prompt and completion) · l ← l / T · keep the top_k
//   largest (ties with the k-th kept) · keep the shortest prefix, by falling probability, whose mass reaches top_p (at
//   least one id) · keep p ≥ min_p · max p · p ← softmax over the kept ids · token = smallest id whose cumulative p
//   exceeds u
// Source: the logits processors of Hugging Face transformers, in its order (generation/logits_process.py). vLLM
// differs: it applies min_p before top_k and top_p.
//
// T = 0 is greedy: the largest logit, the smallest id among equals; truncation has no effect.
// Shapes: logits [V] f32. log_prob: nats, under the distribution sampled from; with truncation and penalty off it is
// log_softmax(l / T). Greedy sampling reports log_softmax(l): the point mass it samples from would always say 0.
// Equal probabilities at the edge of top_p are kept by rising id (transformers: unspecified).
//
// Errors: [rlalgo.inference.4] a sampling setting out of range; [rlalgo.inference.5] logits that are not finite.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cpu/best_kernels.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/request.hpp>

namespace rlalgo::inference {

void check(const SamplingConfig& sampling);

// The uniform of token `position` (0 = first new token) of completion `index`. Indices are taken modulo 2^32.
[[nodiscard]] double draw_uniform(DrawKey key, std::uint64_t index, std::uint32_t position);

struct Drawn {
  data::TokenId id = 0;
  float log_prob = 0.0f;
};

// The draw, with its scratch memory: one object per thread. After the first call of a given setting and vocabulary size
// nothing is allocated.
class TokenDraw {
 public:
  // `seen`: the ids that the repetition penalty applies to, repeats allowed; only read when it is on.
  Drawn operator()(std::span<const float> logits, const SamplingConfig& sampling,
                   std::span<const data::TokenId> seen_prompt, std::span<const data::TokenId> seen_completion,
                   double u) {
    row_ = logits;
    if (sampling.repetition_penalty != 1.0) penalise(sampling.repetition_penalty, seen_prompt, seen_completion);
    find_maximum();
    if (sampling.temperature == 0.0) return greedy();
    scale_ = static_cast<float>(1.0 / sampling.temperature);
    if (!std::isfinite(scale_)) return greedy();  // a temperature this small has one possible outcome
    const bool top_k = sampling.top_k > 0 && sampling.top_k < size();
    if (!top_k && sampling.top_p >= 1.0 && sampling.min_p <= 0.0) return from_all(u);
    return from_kept(sampling, top_k, u);
  }

  // A copy of the logits that may be written to, for the next call.
  std::span<float> editable(std::span<const float> logits);

  // The `count` most likely ids under the distribution of the last call, most likely first, the smaller id among
  // equals; fewer where fewer can be drawn. The logits of that call must still be there.
  void most_likely(std::int64_t count, std::vector<TokenLogProb>& out);

  // Token `id` with log_softmax(l / T), whatever the probability of drawing it; T = 0 as in greedy sampling.
  Drawn given(std::span<const float> logits, double temperature, data::TokenId id);

 private:
  static constexpr std::int64_t block = 512;  // ids per partial sum
  struct Candidate {
    data::TokenId id;
    float logit;
  };

  static bool by_logit(const Candidate& a, const Candidate& b);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(row_.size()); }
  [[nodiscard]] double weight(float logit) const { return std::exp(static_cast<double>((logit - max_) * scale_)); }

  void find_maximum();

  void penalise(double penalty, std::span<const data::TokenId> prompt, std::span<const data::TokenId> completion);

  // Σ exp((l − max)·scale) over all ids; partial sums per block in sums_.
  double total_mass();

  Drawn greedy();

  Drawn from_all(double u);

  // The possible id nearest before `end`; the largest logit's if there is none.
  Drawn last_possible(std::int64_t end, double total) const;

  [[nodiscard]] Drawn drawn(std::int64_t id, double total) const;

  Drawn from_kept(const SamplingConfig& sampling, bool top_k, double u);

  [[nodiscard]] double kept_mass() const;

  void gather_above(float threshold);

  // The ids whose logit is at least the k-th largest. The k-th largest maximum of equal stretches of the row is a lower
  // bound of it, so few ids beyond k have to be looked at.
  void gather_top_k(std::int64_t k);

  // A superset of the ids that hold the mass top_p: everything within a margin of the maximum, widened until it
  // suffices.
  void gather_mass(double top_p);

  const cpu::Kernels& kernels_ = cpu::best_kernels();
  std::span<const float> row_;
  float max_ = 0.0f;
  float scale_ = 1.0f;
  double total_ = 0.0;       // all ids, while kept ones are chosen
  double last_total_ = 0.0;  // of the distribution of the last call
  bool truncated_ = false;   // … which is over kept_ alone
  std::vector<float> sums_, terms_, maxima_, penalised_, edited_;
  std::vector<Candidate> kept_;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/sampling_impl.hpp>
#endif
