// Definitions of blocks.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <ATen/native/CPUBlas.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/blocks.hpp>
#include <rlalgo/tensor/detail/forced_kernels.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE void multiply(const BlockShape& s, const BFloat16* a, const BFloat16* b, float* c) {
  at::native::cpublas::brgemm(s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.add, a, b, c, /*is_vnni=*/true);
}

RLALGO_INLINE void end_of_blocks() { at::native::cpublas::brgemm_release(/*is_vnni=*/true); }

RLALGO_INLINE bool multiplies_bfloat16() {
#if defined(__x86_64__)
  static const bool yes = [] {
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bf16")) return false;
    const std::string_view name = detail::forced_kernels();
    return name.empty() || name == "avx512_bf16" || name == "amx_bf16";
  }();
  return yes;
#else
  return false;
#endif
}

RLALGO_INLINE bool has_amx() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool yes = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned amx = 1U << 22U | 1U << 24U;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx) == amx &&
           ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return yes;
#else
  return false;
#endif
}

RLALGO_INLINE void pair_columns(const BFloat16* x, std::int64_t n, std::int64_t k, std::int64_t stride, BFloat16* out,
                                std::int64_t ldb) {
  constexpr std::int64_t block = 16;  // rows of x at a time: a line of each stays in L1
  const std::int64_t pairs = k / 2;
  for (std::int64_t begin = 0; begin < ldb; begin += block) {
    const std::int64_t end = begin + block < ldb ? begin + block : ldb;
    for (std::int64_t p = 0; p < pairs; ++p) {
      BFloat16* const to = out + 2 * (p * ldb);
      for (std::int64_t i = begin; i < end; ++i) {
        if (i < n)
          std::memcpy(to + 2 * i, x + i * stride + 2 * p, 2 * sizeof(BFloat16));
        else
          std::memset(to + 2 * i, 0, 2 * sizeof(BFloat16));
      }
    }
  }
}

RLALGO_INLINE void pair_rows(const BFloat16* x, std::int64_t rows, std::int64_t n, std::int64_t stride, BFloat16* out) {
  for (std::int64_t row = 0; row < rows; row += 2, out += 2 * n) {
    const BFloat16* const first = x + row * stride;
    const BFloat16* const second = first + stride;
    if (row + 1 < rows) {
      for (std::int64_t i = 0; i < n; ++i) {
        out[2 * i] = first[i];
        out[2 * i + 1] = second[i];
      }
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        out[2 * i] = first[i];
        out[2 * i + 1] = BFloat16(0, BFloat16::from_bits());
      }
    }
  }
}

}  // namespace rlalgo::tensor
