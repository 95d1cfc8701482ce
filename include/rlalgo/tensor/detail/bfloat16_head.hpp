// The three products of the log-prob head (log_prob_head.hpp) for hidden states and a weight in bfloat16, tile by tile, on the
// processor's instructions for them (blocks.hpp):
//
//   l = w·hᵀ      ∂h += gᵀ·w      ∂w += g·h
//
// Logits l and gradients g are tiles of float32 in memory [v, n], words first; a row has `padded(n)` elements. l is what float32
// operands would give up to the order of the sum; g is rounded to bfloat16, as autograd has it in a model of bfloat16.
#pragma once

#include <cstdint>
#include <vector>

#include <rlalgo/tensor/blocks.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor::detail {

class Bfloat16Head {
 public:
  static constexpr std::int64_t columns = 64;  // token counts are padded to a multiple: shapes of blocks stay few

  [[nodiscard]] static std::int64_t padded(std::int64_t n) { return (n + columns - 1) / columns * columns; }

  // hidden [N, H] and weight [V, H], contiguous; H even. Tiles hold `tile_tokens` tokens, the last one the rest.
  Bfloat16Head(Tensor hidden, Tensor weight, std::int64_t tile_tokens);
  Bfloat16Head(const Bfloat16Head&) = delete;
  Bfloat16Head& operator=(const Bfloat16Head&) = delete;
  ~Bfloat16Head();

  // tile[v, n] ← w_{begin + v}·h_n, for `words` words and the tokens of tile number `t`.
  void logits(std::int64_t t, std::int64_t begin, std::int64_t words, float* tile);

  // Begins a backward pass.
  void begin();
  // Begins the gradients of `words` words from `begin` on.
  void begin_words(std::int64_t begin, std::int64_t words, bool hidden, bool weight);
  // Adds g = factor_n·tile[v, n] (factor null: 1) to the gradients of the tokens and words of this tile.
  void add(std::int64_t t, const float* tile, const float* factor);
  // ∂w of these words, [words, H] float32.
  [[nodiscard]] const Tensor& grad_weight() const { return grad_weight_; }

  // ∂h of all that was added, [N, H] float32.
  [[nodiscard]] Tensor grad_hidden() const;

 private:
  struct Tokens {
    std::int64_t begin, count, width;  // width = padded(count)
    Tensor by_columns;                 // pairs of hᵀ, [H/2, width, 2]
    Tensor by_rows;                    // pairs of h, [width/2, H, 2]
    Tensor grad;                       // ∂hᵀ [H, width] float32
  };

  // f(task) for all tasks on as many threads as LibTorch would take.
  template <class F>
  static void parallel(std::int64_t tasks, F&& f);

  Tensor hidden_, weight_;
  std::int64_t width_;  // H
  std::vector<Tokens> tokens_;
  std::int64_t words_ = 0, even_words_ = 0;
  bool wants_hidden_ = false, wants_weight_ = false;
  Tensor turned_;       // wᵀ of these words, [H, even_words_]
  Tensor grad_weight_;  // [words_, H]
  Tensor by_words_;     // g [words_, width of the tile]
  Tensor by_pairs_;     // pairs of g's rows, [even_words_/2, width of the tile, 2]
};

}  // namespace rlalgo::tensor::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/bfloat16_head_impl.hpp>
#endif
