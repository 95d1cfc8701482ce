// y = x Wᵀ for bfloat16 weights on CPUs that multiply bfloat16 (AVX-512 BF16); all else as with AVX-512, to the bit.
//
// x is rounded to bfloat16 (nearest, ties to even), as PyTorch's linear has it in a bfloat16 model; products are exact
// and summed in float32, two at a time.
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

RLALGO_CPU_BEGIN("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")
namespace rlalgo::cpu::avx512_bf16 {

// Pairs of bfloat16 in sixteen lanes.
using avx512::store_sums, lanes::count, lanes::Floats, lanes::zeros;
inline constexpr int most_rows = 6;

RLALGO_CPU_OPERATION __mmask32 first(std::int64_t n) { return static_cast<__mmask32>((std::uint64_t{1} << n) - 1); }
RLALGO_CPU_OPERATION __m512bh load(const std::uint16_t* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
RLALGO_CPU_OPERATION __m512bh load(const std::uint16_t* p, __mmask32 some) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(some, p));
}
// x·y + z of both numbers of each pair.
RLALGO_CPU_OPERATION Floats fma(__m512bh x, __m512bh y, Floats z) { return _mm512_dpbf16_ps(z, x, y); }

}  // namespace rlalgo::cpu::avx512_bf16

#define RLALGO_CPU_SET avx512_bf16
#include <rlalgo/cpu/detail/strip_tile.hpp>
#undef RLALGO_CPU_SET
RLALGO_CPU_END

namespace rlalgo::cpu::avx512_bf16 {

using Tile = StripTile<std::uint16_t, std::uint16_t>;

#define RLALGO_AVX512_BF16 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")

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
