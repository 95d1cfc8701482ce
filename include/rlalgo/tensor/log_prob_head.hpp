// The log-prob head: log-probabilities (and entropies) of given tokens under a linear head, without the logits.
//
//   l_nv = (h_n·w_v + b_v)/T, or with a cap C of logits C·tanh((h_n·w_v + b_v)/C)/T;   log_prob_n = l_{n,target_n} − log Σ_v exp l_nv,   entropy_n = −Σ_v p_nv log p_nv
//
// Runs over tiles of tokens × vocabulary with an online log-sum-exp. Between forward and backward the logits of the
// first H tokens lie in the memory of the weight's gradient, which backward returns and overwrites tile by tile; of the
// others `cache_bytes` are kept and the rest is recomputed. (Where the gradient is added to one that is there, the CPU keeps as many apart, a
// device none of these.) Each tile is added to the gradients:
//   ∂/∂l_nv (times the slope 1 − (l_nv T/C)² of a cap) = g_n (1[v = target_n] − p_nv) − e_n p_nv (log p_nv + entropy_n),   g, e = gradients of log_prob, entropy
// Beyond the gradients, never more than one tile plus the kept tiles is in memory, whatever N is; on a device at most 256 MB.
//
// Shapes: hidden [N, H], weight [V, H], bias [V] or undefined, targets [N] int64; log_prob, entropy [N], nats.
// Runs on any device. Targets in host memory are checked and moved; those on another device are taken as they are, since
// a look at them would wait for the device: who knows them checks them (require_targets).
// Dtypes: float32, float64; bfloat16 and float16 inputs are widened tile by tile, results and sums are float32. Where the CPU
// multiplies bfloat16 and both inputs are, kernels of our own take them as they are and keep no logits (detail/bfloat16_head.hpp says what they keep):
// log-probs are those of float32 operands, ∂/∂l is rounded to bfloat16 before it is multiplied.
// Errors: [rlalgo.tensor.1] shapes or dtypes do not fit; [.2] target outside the vocabulary; [.3] temperature ≤ 0; [.4]
// second derivative; [.5] an input was changed in place before backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/detail/bfloat16_head.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

struct LogProbOptions {
  double temperature = 1.0;                           // > 0; logits are divided by it
  double cap = 0.0;                                   // C; 0 = logits stay as they are
  bool entropy = false;                               // also return the entropy
  bool entropy_gradient = false;                      // … with graph (implies entropy)
  bool greedy = false;                                // also tell whether the target has the highest logit
  std::int64_t tile_tokens = 0;                       // 0 = chosen from the shapes
  std::int64_t tile_vocabulary = 0;                   // 0 = chosen from the shapes
  std::int64_t cache_bytes = std::int64_t{56} << 20;  // kept for backward; other logits are recomputed
  // Backward adds ∂weight to weight.grad() itself, as a decoder's layers do (model/linear.hpp), and makes it where there is none:
  // no second buffer of its size. Of a weight that is a leaf, where the hidden states carry gradient, too; else as without.
  bool adds_weight_gradient = false;
};

struct LogProbs {
  Tensor log_prob;  // [N]
  Tensor entropy;   // [N], undefined unless asked for
  Tensor greedy;    // [N] 1 or 0 without graph, undefined unless asked for
};

namespace detail {

struct Range {
  std::int64_t begin;
  std::int64_t size;
};

std::string text(c10::IntArrayRef sizes);

// Everything forward leaves for backward.
class LogProbTiles {
 public:
  LogProbTiles(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
               const LogProbOptions& options);

  // Returns [2, N] (log_prob, entropy) or [1, N]; keeps what fits into the cache for backward if asked to.
  Tensor forward(bool keep);

  // [N], known after forward().
  [[nodiscard]] const Tensor& greedy() const { return narrow_ ? narrow_->greedy() : greedy_; }

  // Gradients of hidden, weight and bias (undefined where not required, or added). A second call recomputes every tile.
  std::vector<Tensor> backward(const Tensor& grad_out);

  // Whether backward adds the weight's gradient itself.
  [[nodiscard]] bool adds_weight_gradient() const { return leaf_.defined(); }

 private:
  // One tile of scratch memory, viewed at the size of the moment: whole rows lie in memory row after row, parts of the
  // vocabulary column after column, which the matrix products of this shape are fastest with.
  class Buffer {
   public:
    explicit Buffer(const LogProbTiles& head) : head_(head) {}
    Tensor view(std::int64_t rows, std::int64_t columns) {
      if (!memory_.defined())
        memory_ = head_.hidden_.new_empty({head_.tile_tokens_ * head_.tile_vocabulary_},
                                          head_.hidden_.options().dtype(head_.compute_));
      const Tensor part = memory_.narrow(0, 0, rows * columns);
      return head_.whole_rows() ? part.view({rows, columns}) : part.view({columns, rows}).t();
    }

   private:
    const LogProbTiles& head_;
    Tensor memory_;
  };

  static std::vector<Range> ranges(std::int64_t total, std::int64_t step);

  std::vector<Tensor> backward_narrow(const Tensor& grad_out);

  // The vocabulary is one tile: every tile holds whole rows, and is kept as log-probabilities.
  void forward_rows(Tensor& out);

  void forward_tiles(Tensor& out);

  [[nodiscard]] bool whole_rows() const { return tile_vocabulary_ == vocabulary_ && options_.cap == 0.0; }

  // Takes the bytes of a tile from the budget; false when they are not there.
  bool spend(std::int64_t elements);

  // Where the logits of a tile can stay until backward, in memory as a Buffer's view; undefined when nowhere. The rows
  // v of the weight's gradient hold [H, v] values: the logits of as many tokens.
  Tensor room_for(Range n, Range v);

  [[nodiscard]] Tensor widen(const Tensor& x) const { return x.to(compute_); }

  void logits(Tensor tile, Range n, Range v, const Tensor& w) const;

  // 1 − (l·T/C)² of a tile of log-probabilities, which are l − log_sum_.
  [[nodiscard]] Tensor slope_of_cap(const Tensor& log_p, Range n) const;

  void log_probabilities(Tensor& tile, std::size_t tile_index, Range n, Range v, const Tensor& w) const;

  // Column of each target within the vocabulary tile, and whether it lies there. [n, 1] each
  [[nodiscard]] std::pair<Tensor, Tensor> target_in(Range n, Range v) const;

  // About 2¹⁹ elements: large enough for the matrix product, small enough to stay in cache between the passes.
  void choose_tiles();

  void check(const Tensor& targets) const;

  struct Required {
    bool hidden, weight, bias;
  };

  Tensor hidden_, weight_, bias_, targets_;
  Required required_;
  LogProbOptions options_;
  std::uint32_t hidden_version_, weight_version_;  // in-place changes so far
  c10::ScalarType compute_ = c10::ScalarType::Float;
  std::int64_t tokens_ = 0, vocabulary_ = 0, tile_tokens_ = 1, tile_vocabulary_ = 1;
  std::unique_ptr<Bfloat16Head> narrow_;  // does all of it where bfloat16 is multiplied as it is; else null
  Tensor states_;                         // [N, H] hidden_ widened, in memory as the tiles; undefined with narrow_
  Tensor log_sum_, entropy_;              // [N, 1]
  Tensor greedy_;                         // [N]
  std::int64_t budget_ = 0;               // bytes of tiles that may still be kept
  bool keeps_ = false;                    // a backward will follow
  Tensor gradient_memory_;                // of the weight, whose memory holds logits until backward
  Tensor leaf_;                           // the weight itself, where backward adds to its gradient; else undefined
  bool apart_from_gradient_ = false;      // the gradient has values: logits have memory of their own
  std::vector<Tensor> kept_;  // by tile, vocabulary-major: logits, or log-probabilities of whole rows; some undefined
};

}  // namespace detail

// Raises [rlalgo.tensor.2] unless all are below `vocabulary`.
void require_targets(std::span<const std::int64_t> targets, std::int64_t vocabulary);

LogProbs log_prob_head(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                       const LogProbOptions& options = {}, const Tensor& bias = {});

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/log_prob_head_impl.hpp>
#endif
