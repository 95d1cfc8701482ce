// y = x Wᵀ for bfloat16 weights by oneDNN's kernels for blocks (tensor/blocks.hpp), which multiply with AMX where the
// CPU has it; all else as with AVX-512, to the bit.
//
// x is rounded to bfloat16 and packed in pairs, up to 64 rows at a time; W is taken as it lies, a block of its rows against
// them. So a block gives yᵀ, which is turned while it is stored. Rows of x are padded to a multiple of 16: one row costs as much as sixteen,
// which AMX makes up for (it does 16 rows in the time that one row of W takes to come from memory) and AVX-512 does not.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>
#include <vector>

#include <rlalgo/inference/detail/avx512_bf16_kernels.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/turned.hpp>
#include <rlalgo/tensor/blocks.hpp>

namespace rlalgo::inference::detail::onednn_bf16 {

using tensor::BFloat16;

inline constexpr std::int64_t most_rows = 64, block = 32;  // of x, of W

inline void linear_bf16(const LinearArgs& a) {
  if (a.k % 2 != 0) return avx512_bf16::linear_bf16(a);  // pairs: of an odd k, whatever the rows
  thread_local std::vector<BFloat16> rounded, pairs;
  thread_local std::vector<float> turned(static_cast<std::size_t>(block * most_rows));
  const auto* const w = static_cast<const BFloat16*>(a.w);
  rounded.resize(static_cast<std::size_t>(most_rows * a.k));
  pairs.resize(static_cast<std::size_t>(most_rows * a.k));
  for (std::int64_t begin = 0; begin < a.m; begin += most_rows) {
    const std::int64_t rows = std::min(most_rows, a.m - begin), width = (rows + 15) / 16 * 16;
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const x = a.x + (begin + i) * a.ldx;
      for (std::int64_t j = 0; j < a.k; ++j) rounded[static_cast<std::size_t>(i * a.k + j)] = BFloat16(x[j]);
    }
    tensor::pair_columns(rounded.data(), rows, a.k, a.k, pairs.data(), width);
    for (std::int64_t n = a.begin; n < a.end; n += block) {
      const std::int64_t count = std::min(block, a.end - n);
      // The weights come from memory, once; a block ahead is on its way while this one is multiplied.
      const char* const next = reinterpret_cast<const char*>(w + (n + count) * a.k);
      const std::int64_t bytes = std::min(block, a.end - n - count) * a.k * static_cast<std::int64_t>(sizeof(BFloat16));
      for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(next + at, 0, 2);
      tensor::multiply({count, width, a.k, a.k, width, width}, w + n * a.k, pairs.data(), turned.data());
      store_turned(turned.data(), width, rows, count, a.y + begin * a.ldy + n - a.begin, a.ldy);
    }
  }
  tensor::end_of_blocks();
}

inline constexpr Kernels kernels = [] {
  Kernels all = avx512_bf16::kernels;
  all.name = "onednn_bf16";
  all.linear_bf16 = linear_bf16;
  all.round = nullptr;
  return all;
}();

[[nodiscard]] inline bool supported() { return avx512_bf16::supported(); }

// Whether these kernels are the fastest.
[[nodiscard]] inline bool fastest() { return supported() && tensor::has_amx(); }

}  // namespace rlalgo::inference::detail::onednn_bf16

#endif
