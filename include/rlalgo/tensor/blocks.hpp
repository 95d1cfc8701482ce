// Products of small blocks in bfloat16 with float32 sums, at the rate of the processor's own instructions (AVX-512's, AMX).
//
//   C[m, n] (+)= Σ_k A[m, k]·B[k, n]
//
// oneDNN's kernels for blocks, as LibTorch has them (`at::native::cpublas::brgemm`), which are compiled for the CPU when the
// first block of a shape comes: few shapes are fast, many are not. Products of bfloat16 are exact; the order of a sum
// follows from k alone, neither from m and n nor from the thread, so a column has the same bits in any block.
//
// Shapes: A [m, k] row-major, B [k, n] in pairs of rows, C [m, n] row-major; lda and ldc in elements, ldb in pairs. k is even.
//   pairs of rows: B[k, n] is element k mod 2 of pair [k/2, n].
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace rlalgo::tensor {

using c10::BFloat16;

struct BlockShape {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  bool add = false;  // to what C holds
};

// On the calling thread.
void multiply(const BlockShape& shape, const BFloat16* a, const BFloat16* b, float* c);

// Gives back what the CPU holds for blocks (AMX has tiles to configure): after the last of a series, by the thread that computed
// it, before anything else of oneDNN's runs there.
void end_of_blocks();

// Whether bfloat16 is faster than float32 here: the CPU multiplies bfloat16, and RLALGO_CPU, where it is set, names a set of
// kernels that does (`avx512_bf16`, `amx_bf16`).
[[nodiscard]] bool multiplies_bfloat16();

// Whether the CPU has AMX for bfloat16 (CPUID leaf 7, EDX bits 22 and 24), which multiplies it several times as fast, and Linux lets
// this process use it, which the first call asks for.
[[nodiscard]] bool has_amx();

// The pairs of rows of xᵀ, for x [n, k] with row stride `stride`: k/2 rows of `ldb` pairs, those from n on zero.
void pair_columns(const BFloat16* x, std::int64_t n, std::int64_t k, std::int64_t stride, BFloat16* out,
                  std::int64_t ldb);

// The pairs of rows of x [k, n] with row stride `stride`, (rows + 1)/2 rows of n pairs; of `rows` odd, the last pair's second is 0.
void pair_rows(const BFloat16* x, std::int64_t rows, std::int64_t n, std::int64_t stride, BFloat16* out);

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/blocks_impl.hpp>
#endif
