// Definitions of bfloat16_head.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/thread_pool.hpp>
#include <rlalgo/tensor/blocks.hpp>
#include <rlalgo/tensor/detail/bfloat16_head.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::tensor::detail {

inline constexpr std::int64_t block_rows = 64;

RLALGO_INLINE Bfloat16Head::Bfloat16Head(Tensor hidden, Tensor weight, std::int64_t tile_tokens)
    : hidden_(std::move(hidden)), weight_(std::move(weight)), width_(hidden_.size(1)) {
  const auto narrow = hidden_.options().dtype(c10::ScalarType::BFloat16);
  for (std::int64_t begin = 0; begin < hidden_.size(0); begin += tile_tokens) {
    Tokens t{begin, std::min(tile_tokens, hidden_.size(0) - begin), 0, {}, {}, {}};
    t.width = padded(t.count);
    t.by_columns = empty({width_ / 2, t.width, 2}, narrow);
    pair_columns(hidden_.const_data_ptr<BFloat16>() + begin * width_, t.count, width_, width_,
                 t.by_columns.mutable_data_ptr<BFloat16>(), t.width);
    tokens_.push_back(std::move(t));
  }
}

RLALGO_INLINE Bfloat16Head::~Bfloat16Head() = default;

template <class F>
void Bfloat16Head::parallel(std::int64_t tasks, F&& f) {
  // Of the calling thread, for all heads: the kernels that a worker has compiled for blocks are that thread's own.
  thread_local std::unique_ptr<core::ThreadPool> pool;
  const int threads = available_threads();
  if (!pool || pool->threads() != threads) pool = std::make_unique<core::ThreadPool>(threads);
  // A task is tens of microseconds; a few of them end with one release of the CPU's tiles.
  const std::int64_t parts = std::min<std::int64_t>(tasks, 4 * threads);
  pool->run(static_cast<std::uint32_t>(parts), [&](std::uint32_t part, int) {
    for (std::int64_t i = tasks * part / parts; i < tasks * (part + 1) / parts; ++i) f(i);
    end_of_blocks();
  });
}

RLALGO_INLINE void Bfloat16Head::logits(std::int64_t t, std::int64_t begin, std::int64_t words, float* tile) {
  const Tokens& tokens = tokens_[static_cast<std::size_t>(t)];
  const BFloat16* const w = weight_.const_data_ptr<BFloat16>() + begin * width_;
  const BFloat16* const h = tokens.by_columns.const_data_ptr<BFloat16>();
  parallel((words + block_rows - 1) / block_rows, [&](std::int64_t i) {
    const std::int64_t row = i * block_rows, rows = std::min(block_rows, words - row);
    multiply({rows, tokens.width, width_, width_, tokens.width, tokens.width}, w + row * width_, h,
             tile + row * tokens.width);
  });
}

RLALGO_INLINE void Bfloat16Head::begin() {
  for (Tokens& t : tokens_) t.grad = Tensor();
}

RLALGO_INLINE void Bfloat16Head::begin_words(std::int64_t begin, std::int64_t words, bool hidden, bool weight) {
  words_ = words;
  even_words_ = words + words % 2;
  wants_hidden_ = hidden;
  wants_weight_ = weight;
  const auto narrow = hidden_.options().dtype(c10::ScalarType::BFloat16);
  const auto wide = hidden_.options().dtype(c10::ScalarType::Float);
  const std::int64_t widest = tokens_.empty() ? 0 : tokens_.front().width;
  if (hidden) {
    turned_ = words == even_words_ ? empty({width_, even_words_}, narrow) : zeros({width_, even_words_}, narrow);
    turned_.narrow(1, 0, words).copy_(weight_.narrow(0, begin, words).t());
    if (!by_pairs_.defined() || by_pairs_.size(0) < even_words_ / 2)
      by_pairs_ = empty({even_words_ / 2, widest, 2}, narrow);
  }
  if (weight) {
    grad_weight_ = empty({words, width_}, wide);
    if (!by_words_.defined() || by_words_.size(0) < words) by_words_ = empty({words, widest}, narrow);
  }
}

RLALGO_INLINE void Bfloat16Head::add(std::int64_t t, const float* tile, const float* factor) {
  Tokens& tokens = tokens_[static_cast<std::size_t>(t)];
  const std::int64_t width = tokens.width, count = tokens.count;
  const auto narrow = hidden_.options().dtype(c10::ScalarType::BFloat16);
  const auto wide = hidden_.options().dtype(c10::ScalarType::Float);
  const bool first_words = !tokens.grad.defined();
  if (wants_hidden_ && first_words) tokens.grad = empty({width_, width}, wide);
  if (wants_weight_ && !tokens.by_rows.defined()) {
    tokens.by_rows = zeros({width / 2, width_, 2}, narrow);
    pair_rows(hidden_.const_data_ptr<BFloat16>() + tokens.begin * width_, count, width_, width_,
              tokens.by_rows.mutable_data_ptr<BFloat16>());
  }
  BFloat16* const by_words = wants_weight_ ? by_words_.mutable_data_ptr<BFloat16>() : nullptr;
  BFloat16* const by_pairs = wants_hidden_ ? by_pairs_.mutable_data_ptr<BFloat16>() : nullptr;
  // A pair of rows at a time, through `lines` [2, width]. What is beyond the tokens and words stays 0.
  const auto round_pair = [&](std::int64_t pair, std::vector<BFloat16>& lines) {
    std::fill(lines.begin(), lines.end(), BFloat16(0, BFloat16::from_bits()));
    BFloat16* const first = lines.data();
    BFloat16* const second = first + width;
    for (std::int64_t word = 2 * pair; word < std::min(words_, 2 * pair + 2); ++word) {
      const float* const from = tile + word * width;
      BFloat16* const line = word == 2 * pair ? first : second;
      if (factor == nullptr)
        for (std::int64_t n = 0; n < count; ++n) line[n] = BFloat16(from[n]);
      else
        for (std::int64_t n = 0; n < count; ++n) line[n] = BFloat16(factor[n] * from[n]);
      if (by_words != nullptr) std::copy_n(line, width, by_words + word * width);
    }
    if (by_pairs == nullptr) return;
    BFloat16* const out = by_pairs + 2 * pair * width;
    for (std::int64_t n = 0; n < width; ++n) {
      out[2 * n] = first[n];
      out[2 * n + 1] = second[n];
    }
  };
  const std::int64_t pairs = even_words_ / 2, stretch = block_rows / 2;
  parallel((pairs + stretch - 1) / stretch, [&](std::int64_t i) {
    std::vector<BFloat16> lines(static_cast<std::size_t>(2 * width));
    for (std::int64_t pair = i * stretch; pair < std::min(pairs, (i + 1) * stretch); ++pair) round_pair(pair, lines);
  });
  if (wants_weight_) {
    float* const grad = grad_weight_.mutable_data_ptr<float>();
    const BFloat16* const h = tokens.by_rows.const_data_ptr<BFloat16>();
    parallel((words_ + block_rows - 1) / block_rows, [&](std::int64_t i) {
      const std::int64_t row = i * block_rows, rows = std::min(block_rows, words_ - row);
      multiply({rows, width_, width, width, width_, width_, t > 0}, by_words + row * width, h, grad + row * width_);
    });
  }
  if (wants_hidden_) {
    float* const grad = tokens.grad.mutable_data_ptr<float>();
    const BFloat16* const w = turned_.const_data_ptr<BFloat16>();
    parallel((width_ + block_rows - 1) / block_rows, [&](std::int64_t i) {
      const std::int64_t row = i * block_rows, rows = std::min(block_rows, width_ - row);
      multiply({rows, width, even_words_, even_words_, width, width, !first_words}, w + row * even_words_, by_pairs,
               grad + row * width);
    });
  }
}

RLALGO_INLINE Tensor Bfloat16Head::grad_hidden() const {
  Tensor out = zeros(hidden_.sizes(), hidden_.options().dtype(c10::ScalarType::Float));
  for (const Tokens& t : tokens_)
    if (t.grad.defined()) out.narrow(0, t.begin, t.count).copy_(t.grad.narrow(1, 0, t.count).t());
  return out;
}

}  // namespace rlalgo::tensor::detail
