// y = x Wᵀ for bfloat16 weights on CPUs that multiply bfloat16 (AVX-512 BF16); all else as with AVX-512, to the bit.
//
// x is rounded to bfloat16 (nearest, ties to even), as PyTorch's linear has it in a bfloat16 model; products are exact
// and summed in float32. A tile is 4 rows of W by 6 rows of x: 24 running sums of sixteen lanes, each of which takes
// two products at a time. A block is summed in sixteen lanes, added pairwise.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>
#include <cstdint>
#include <vector>

#include <rlalgo/cpu/detail/avx2_kernels.hpp>
#include <rlalgo/cpu/detail/avx512_bf16_attention.hpp>
#include <rlalgo/cpu/detail/avx512_int8.hpp>
#include <rlalgo/cpu/detail/avx512_kernels.hpp>
#include <rlalgo/cpu/detail/avx512_packed.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::cpu::avx512_bf16 {

#define RLALGO_AVX512_BF16 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")

struct Tile {
  using X = std::uint16_t;  // the bits of a bfloat16
  using W = std::uint16_t;
  static constexpr std::int64_t columns_of_k = 32, largest_block = 1280;
  static constexpr int rows = 6;

  // The first `count` elements, the others 0.
  [[RLALGO_AVX512_BF16, gnu::always_inline]] static __m512bh load(const std::uint16_t* p, __mmask32 some) {
    return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(some, p));
  }
  [[RLALGO_AVX512_BF16, gnu::always_inline]] static __m512bh load(const std::uint16_t* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }

  template <int Columns, int Rows, int Lines>
  [[RLALGO_AVX512_BF16]] static void multiply(const X* x, std::int64_t ldx, const W* w, std::int64_t ldw,
                                              std::int64_t k, float* y, std::int64_t ldy, bool add, const char* ahead) {
    __m512 sum[Rows][Columns];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_setzero_ps();
    std::int64_t j = 0;
    for (; j + columns_of_k <= k; j += columns_of_k, ahead += Lines * cache_line) {
      prefetch<Lines>(ahead);
      __m512bh ws[Columns];
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) ws[n] = load(w + n * ldw + j);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const __m512bh xs = load(x + i * ldx + j);
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_dpbf16_ps(sum[i][n], xs, ws[n]);
      }
    }
    if (j < k) {
      const __mmask32 some = (__mmask32{1} << (k - j)) - 1;
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n)
          sum[i][n] = _mm512_dpbf16_ps(sum[i][n], load(x + i * ldx + j, some), load(w + n * ldw + j, some));
    }
    avx512::store_sums<Columns, Rows>(sum, y, ldy, add);
  }

  template <int Columns>
  [[RLALGO_AVX512_BF16]] static void multiply_row(const X* x, const W* w, std::int64_t ldw, std::int64_t k, float* y,
                                                  bool add) {
    __m512 sum[1][Columns];
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) {
      const W* const row = w + n * ldw;
      __m512 s = _mm512_setzero_ps();
      std::int64_t j = 0;
      for (; j + columns_of_k <= k; j += columns_of_k) {
        prefetch<1>(reinterpret_cast<const char*>(row + j) + prefetch_distance);
        s = _mm512_dpbf16_ps(s, load(x + j), load(row + j));
      }
      if (j < k) {
        const __mmask32 some = (__mmask32{1} << (k - j)) - 1;
        s = _mm512_dpbf16_ps(s, load(x + j, some), load(row + j, some));
      }
      sum[0][n] = s;
    }
    avx512::store_sums<Columns, 1>(sum, y, 0, add);
  }
};

// Eight at a time: x was often just stored by registers of eight, and a load that spans two stores waits for both to be in the cache.
[[RLALGO_AVX512_BF16]] inline void round(const float* x, std::int64_t n, std::uint16_t* out) {
  std::int64_t j = 0;
  for (; j + 8 <= n; j += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + j),
                     reinterpret_cast<__m128i>(_mm256_cvtneps_pbh(_mm256_loadu_ps(x + j))));
  if (j == n) return;
  const auto some = static_cast<__mmask8>(lanes::first(n - j));
  _mm_mask_storeu_epi16(out + j, some,
                        reinterpret_cast<__m128i>(_mm256_cvtneps_pbh(_mm256_maskz_loadu_ps(some, x + j))));
}

#undef RLALGO_AVX512_BF16

inline void linear_bf16(const LinearArgs& a) {
  if (a.x_bf16 != nullptr) return LinearStrips<Tile>(a, a.x_bf16, a.ldx).run();
  struct alignas(64) CacheLine {
    std::array<std::uint16_t, 32> elements;
  };
  thread_local std::vector<CacheLine> rounded;  // the rows of x, each from a cache line on
  const std::int64_t lines = (a.k + 31) / 32;
  rounded.resize(static_cast<std::size_t>(a.m * lines));
  for (std::int64_t i = 0; i < a.m; ++i)
    round(a.x + i * a.ldx, a.k, rounded[static_cast<std::size_t>(i * lines)].elements.data());
  LinearStrips<Tile>(a, rounded.front().elements.data(), 32 * lines).run();
}

inline constexpr Kernels kernels = [] {
  Kernels all = avx512::kernels;
  all.name = "avx512_bf16";
  all.linear_bf16 = linear_bf16;
  all.linear_int8 = avx512_vnni::linear_int8;
  all.blocks_bf16 = &block_kernels;
  all.round = round;
  all.attention_bf16 = attention_bf16;
  all.rows_apart_f32 = avx2::kernels.rows_apart_f32;  // without AMX such a core multiplies a register at a time
  return all;
}();

[[nodiscard]] inline bool supported() {
  return avx512::supported() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace rlalgo::cpu::avx512_bf16

#endif
