// The log-prob head (log_prob_head.hpp) for hidden states and a weight in bfloat16, by the tiles with which products.hpp multiplies
// them: logits are made, reduced or differentiated, and forgotten, a block of words and tokens at a time.
//
//   l = (w·h + b)/T      ∂h = Σ_v ∂/∂l_v · w_v      ∂w_v = Σ_n ∂/∂l_n · h_n
//
// l is what float32 operands would give up to the order of the sum; ∂/∂l is rounded to bfloat16, as autograd has it in a model of
// bfloat16. Words come in stretches, whose results are joined in order, and every other sum has the order of words or tokens: the
// number of threads changes no bit.
// Memory beyond inputs and gradients: h twice, packed; 12 bytes a token and stretch of words in forward; in backward a float32 ∂h,
// and of a tile of words w and about 2²¹ ∂/∂l in bfloat16.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor::detail {

// Where has_bfloat16_kernel().
class Bfloat16Head {
 public:
  struct Options {
    double temperature;
    bool entropy, greedy;
    std::int64_t tile_tokens, tile_words;  // 0 = chosen from the shapes
  };

  // hidden [N, H], weight [V, H], contiguous; bias [V] float32 or undefined; targets [N] in host memory, 0 … V − 1.
  Bfloat16Head(Tensor hidden, Tensor weight, Tensor bias, const Tensor& targets, Options options);

  // [2, N] (log_prob, entropy) or [1, N], float32.
  [[nodiscard]] Tensor forward();
  // [N], known after forward().
  [[nodiscard]] const Tensor& greedy() const { return greedy_; }

  struct Gradients {
    Tensor hidden, weight, bias;
  };
  // `of_log_prob` and `of_entropy` [N] float32, the latter undefined where nobody asks. Writes the gradients that are defined, in
  // the dtypes of their tensors, bias [V] float32; with `adds` adds to that of the weight.
  void backward(const Tensor& of_log_prob, const Tensor& of_entropy, bool adds, const Gradients& gradients);

 private:
  struct Range {
    std::int64_t begin, end;
  };
  template <class Kernel>
  void reduce(const Tensor& maximum, const Tensor& sum, const Tensor& moment, float* chosen) const;
  template <class Kernel>
  void differentiate(const float* of_log_prob, const float* of_entropy, bool adds, const Gradients& gradients) const;

  // The tokens whose targets lie in [begin, end): a range of by_target_.
  [[nodiscard]] Range targets_in(std::int64_t begin, std::int64_t end) const;
  [[nodiscard]] std::int64_t stretches() const;

  Tensor hidden_, weight_, bias_;
  Options options_;
  std::int64_t tokens_, words_, width_, chunk_;                   // N, V, H; tokens of a block
  std::vector<std::pair<std::int64_t, std::int64_t>> by_target_;  // (target, token), ascending
  Tensor log_sum_, entropy_, log_prob_, greedy_;                  // [N]
};

}  // namespace rlalgo::tensor::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/bfloat16_head_impl.hpp>
#endif
