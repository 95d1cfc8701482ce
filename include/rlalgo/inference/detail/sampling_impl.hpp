// Definitions of sampling.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/sampling.hpp>

namespace rlalgo::inference {

RLALGO_INLINE void check(const SamplingConfig& sampling) {
  const auto require = [](bool good, const char* name, double value, const char* expected) {
    if (!good)
      core::raise_usage("inference", 4,
                        {.what = std::string("sampling setting ") + name + " is out of range",
                         .found = std::to_string(value),
                         .expected = expected});
  };
  require(sampling.temperature >= 0.0 && std::isfinite(sampling.temperature), "temperature", sampling.temperature,
          "≥ 0");
  require(sampling.top_p > 0.0 && sampling.top_p <= 1.0, "top_p", sampling.top_p, "in (0, 1]");
  require(sampling.top_k >= 0, "top_k", static_cast<double>(sampling.top_k), "≥ 0 (0 = off)");
  require(sampling.min_p >= 0.0 && sampling.min_p <= 1.0, "min_p", sampling.min_p, "in [0, 1]");
  require(sampling.repetition_penalty > 0.0 && std::isfinite(sampling.repetition_penalty), "repetition_penalty",
          sampling.repetition_penalty, "> 0");
  require(sampling.max_new_tokens >= 1, "max_new_tokens", static_cast<double>(sampling.max_new_tokens), "≥ 1");
}

RLALGO_INLINE double draw_uniform(DrawKey key, std::uint64_t index, std::uint32_t position) {
  return core::uniform({key.seed, core::Stream::sampling}, key.step, index << 32U | position);
}

RLALGO_INLINE std::span<float> TokenDraw::editable(std::span<const float> logits) {
  edited_.assign(logits.begin(), logits.end());
  return edited_;
}

RLALGO_INLINE void TokenDraw::most_likely(std::int64_t count, std::vector<TokenLogProb>& out) {
  out.clear();
  count = std::min(count, size());
  if (count <= 0) return;
  if (!truncated_) gather_top_k(count);
  std::sort(kept_.begin(), kept_.end(), by_logit);
  for (const Candidate& c : kept_) {
    if (static_cast<std::int64_t>(out.size()) == count) break;
    if (weight(c.logit) > 0.0) out.push_back({c.id, drawn(c.id, last_total_).log_prob});
  }
}

RLALGO_INLINE Drawn TokenDraw::given(std::span<const float> logits, double temperature, data::TokenId id) {
  row_ = logits;
  find_maximum();
  scale_ = static_cast<float>(1.0 / temperature);
  if (!std::isfinite(scale_)) scale_ = 1.0f;
  return drawn(id, total_mass());
}

RLALGO_INLINE bool TokenDraw::by_logit(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

RLALGO_INLINE void TokenDraw::find_maximum() {
  const cpu::MaxResult top = kernels_.maximum(row_.data(), size());
  if (!top.finite)
    core::raise("inference", 5,
                {.what = "the model's logits are not finite",
                 .found = "NaN or infinity",
                 .expected = "numbers",
                 .remedy = "training has diverged or the checkpoint is damaged; lower the learning rate or check it"});
  max_ = top.max;
}

RLALGO_INLINE void TokenDraw::penalise(double penalty, std::span<const data::TokenId> prompt,
                                       std::span<const data::TokenId> completion) {
  penalised_.assign(row_.begin(), row_.end());
  const float p = static_cast<float>(penalty);
  for (const auto ids : {prompt, completion})
    for (const data::TokenId id : ids) {
      const float l = row_[static_cast<std::size_t>(id)];
      penalised_[static_cast<std::size_t>(id)] = l > 0.0f ? l / p : l * p;
    }
  row_ = penalised_;
}

RLALGO_INLINE double TokenDraw::total_mass() {
  sums_.clear();
  double total = 0.0;
  for (std::int64_t begin = 0; begin < size(); begin += block) {
    sums_.push_back(kernels_.exp_sum(row_.data() + begin, max_, scale_, nullptr, std::min(block, size() - begin)));
    total += sums_.back();
  }
  truncated_ = false;
  last_total_ = total;
  return total;
}

RLALGO_INLINE Drawn TokenDraw::greedy() {
  const auto best = std::find(row_.begin(), row_.end(), max_);
  scale_ = 1.0f;
  return {static_cast<data::TokenId>(best - row_.begin()), static_cast<float>(-std::log(total_mass()))};
}

RLALGO_INLINE Drawn TokenDraw::from_all(double u) {
  const double total = total_mass();
  const double target = u * total;
  double before = 0.0;
  std::size_t b = 0;
  while (b + 1 < sums_.size() && before + sums_[b] <= target) before += sums_[b++];
  // Rounding can leave the target at or behind the end of a block: then its last possible id is taken.
  const std::int64_t begin = static_cast<std::int64_t>(b) * block;
  const std::int64_t n = std::min(block, size() - begin);
  terms_.resize(block);
  kernels_.exp_sum(row_.data() + begin, max_, scale_, terms_.data(), n);
  std::int64_t chosen = -1;
  for (std::int64_t j = 0; j < n; ++j) {
    if (terms_[static_cast<std::size_t>(j)] <= 0.0f) continue;
    chosen = j;
    before += terms_[static_cast<std::size_t>(j)];
    if (before > target) break;
  }
  if (chosen < 0) return last_possible(begin, total);
  return drawn(begin + chosen, total);
}

RLALGO_INLINE Drawn TokenDraw::last_possible(std::int64_t end, double total) const {
  for (std::int64_t j = end; j-- > 0;)
    if (weight(row_[static_cast<std::size_t>(j)]) > 0.0) return drawn(j, total);
  return drawn(std::find(row_.begin(), row_.end(), max_) - row_.begin(), total);
}

RLALGO_INLINE Drawn TokenDraw::drawn(std::int64_t id, double total) const {
  const double scaled = static_cast<double>((row_[static_cast<std::size_t>(id)] - max_) * scale_);
  return {static_cast<data::TokenId>(id), static_cast<float>(scaled - std::log(total))};
}

RLALGO_INLINE Drawn TokenDraw::from_kept(const SamplingConfig& sampling, bool top_k, double u) {
  if (top_k)
    gather_top_k(sampling.top_k);
  else if (sampling.top_p < 1.0)
    gather_mass(sampling.top_p);
  else
    gather_above(max_ + static_cast<float>(std::log(sampling.min_p) / scale_) - 1e-3f / scale_);
  std::sort(kept_.begin(), kept_.end(), by_logit);
  if (sampling.top_p < 1.0) {
    const double total = top_k ? kept_mass() : total_;
    double before = 0.0;
    std::size_t n = 0;
    while (n < kept_.size() && (n == 0 || before < sampling.top_p * total)) before += weight(kept_[n++].logit);
    kept_.resize(n);
  }
  if (sampling.min_p > 0.0)
    while (kept_.size() > 1 && weight(kept_.back().logit) < sampling.min_p) kept_.pop_back();
  // Walked by id, like the untruncated draw: near-equal logits cannot reorder the intervals.
  std::sort(kept_.begin(), kept_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const double total = kept_mass();
  truncated_ = true;
  last_total_ = total;
  const double target = u * total;
  double before = 0.0;
  std::int64_t chosen = -1;
  for (const Candidate& c : kept_) {
    const double w = weight(c.logit);
    if (w <= 0.0) continue;
    chosen = c.id;
    before += w;
    if (before > target) break;
  }
  return drawn(chosen, total);
}

RLALGO_INLINE double TokenDraw::kept_mass() const {
  double total = 0.0;
  for (const Candidate& c : kept_) total += weight(c.logit);
  return total;
}

RLALGO_INLINE void TokenDraw::gather_above(float threshold) {
  kept_.clear();
  kept_.reserve(row_.size());
  for (std::int64_t j = 0; j < size(); ++j)
    if (row_[static_cast<std::size_t>(j)] >= threshold)
      kept_.push_back({static_cast<data::TokenId>(j), row_[static_cast<std::size_t>(j)]});
}

RLALGO_INLINE void TokenDraw::gather_top_k(std::int64_t k) {
  float bound = -std::numeric_limits<float>::infinity();
  const std::int64_t stretch = std::max<std::int64_t>(1, size() / (4 * k));
  if (stretch >= 8) {
    maxima_.clear();
    for (std::int64_t begin = 0; begin < size(); begin += stretch)
      maxima_.push_back(kernels_.maximum(row_.data() + begin, std::min(stretch, size() - begin)).max);
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(), std::greater<>());
    bound = maxima_[static_cast<std::size_t>(k - 1)];
  }
  gather_above(bound);
  const auto kth = kept_.begin() + (k - 1);
  std::nth_element(kept_.begin(), kth, kept_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  const float limit = kth->logit;
  std::erase_if(kept_, [limit](const Candidate& c) { return c.logit < limit; });
}

RLALGO_INLINE void TokenDraw::gather_mass(double top_p) {
  total_ = total_mass();
  for (float margin = 8.0f;; margin *= 2.0f) {
    const bool all = margin > 100.0f;  // e^−88 is the smallest normal f32: what is further away weighs nothing
    gather_above(all ? -std::numeric_limits<float>::infinity() : max_ - margin / scale_);
    if (all || kept_mass() >= top_p * total_ * (1.0 + 1e-6)) return;
  }
}

}  // namespace rlalgo::inference
