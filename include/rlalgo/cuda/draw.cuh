// Draws of tokens from rows of logits (kernels.hpp): a block for each row.
//
// Random numbers are those of core/philox.hpp, the arithmetic that of inference/sampling.hpp with the portable kernels: every
// product and sum of floats is rounded by itself, what is summed is summed in the same order, masses in double.
// Source of the generator: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Philox4x32-10).
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int draw_threads = 512, draw_block = 512, draw_lanes = 8;  // block: ids of a partial sum
inline constexpr std::uint32_t sampling_stream = 1;

// Uniform in [0, 1) with 53 random bits, of the block that (seed, stream; step, index) names.
__device__ inline double philox_uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t step,
                                        std::uint64_t index) {
  std::uint32_t k0 = static_cast<std::uint32_t>(seed),
                k1 = static_cast<std::uint32_t>(seed >> 32U) ^ stream * 0x9E3779B9U;
  std::uint32_t c[4] = {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                        static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32U)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c[0], p1 = 0xCD9E8D57ULL * c[2];
    const std::uint32_t c0 = static_cast<std::uint32_t>(p1 >> 32U) ^ c[1] ^ k0,
                        c2 = static_cast<std::uint32_t>(p0 >> 32U) ^ c[3] ^ k1;
    c[0] = c0, c[1] = static_cast<std::uint32_t>(p1), c[2] = c2, c[3] = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return static_cast<double>((static_cast<std::uint64_t>(c[0]) << 32U | c[1]) >> 11U) * 0x1.0p-53;
}

// e^x by range reduction to |r| ≤ ln2/2 and a degree-6 polynomial (Cephes expf); results below the smallest normal number
// are 0.
__device__ inline float portable_exp(float x) {
  x = fminf(x, 88.3762626647950F);
  if (!(x > -87.33654F)) return 0.0F;
  const float n = rintf(__fmul_rn(x, 1.44269504088896341F));
  const float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.693359375F)), __fmul_rn(n, -2.12194440e-4F));
  float p = 1.9875691500e-4F;
  p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3F);
  p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3F);
  p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2F);
  p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1F);
  p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1F);
  p = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0F);
  return __fmul_rn(p, __uint_as_float(static_cast<std::uint32_t>(static_cast<int>(n) + 127) << 23U));
}

struct Largest {
  float logit;
  std::int32_t id;
  int finite;
};
// Of equal ones the one with the smaller id.
__device__ inline Largest larger(const Largest& a, const Largest& b) {
  const bool first = a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  return {first ? a.logit : b.logit, first ? a.id : b.id, a.finite & b.finite};
}

struct DrawShared {
  Largest of_warp[draw_threads / 32];
  std::int64_t block;  // ids of the partial sum that holds the drawn one
  double before, target, total;
  float terms[draw_block];
  float sums[draw_vocabulary / draw_block];
};

__device__ inline float scaled_logit(float logit, float top, float scale) {
  return __fmul_rn(__fsub_rn(logit, top), scale);
}

template <int Threads>
__global__ void __launch_bounds__(Threads) draw_kernel(Draw a) {
  RLALGO_CUDA_SHARED(DrawShared, shared);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x;
  const float* const logits = a.logits + row * a.stride;
  const DrawKeyed key = a.keys[row];
  const bool greedy = !(key.scale > 0.0F) || !(key.scale < INFINITY);
  const float scale = greedy ? 1.0F : key.scale;

  Largest largest{-INFINITY, 0x7FFFFFFF, 1};
  for (std::int64_t j = thread; j < a.vocabulary; j += Threads)
    largest = larger(largest, {logits[j], static_cast<std::int32_t>(j), fabsf(logits[j]) < INFINITY ? 1 : 0});
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2)
    largest = larger(largest,
                     {__shfl_xor_sync(whole_warp, largest.logit, bits), __shfl_xor_sync(whole_warp, largest.id, bits),
                      __shfl_xor_sync(whole_warp, largest.finite, bits)});
  if (thread % 32 == 0) shared.of_warp[thread / 32] = largest;
  __syncthreads();
  largest = shared.of_warp[0];
  for (int w = 1; w < Threads / 32; ++w) largest = larger(largest, shared.of_warp[w]);
  if (largest.finite == 0) {
    if (thread == 0) a.tokens[row] = -1, a.log_probs[row] = 0.0F;
    return;
  }
  const float top = largest.logit;

  // Partial sums: eight threads take one each, every eighth id.
  const std::int64_t blocks = (a.vocabulary + draw_block - 1) / draw_block;
  for (std::int64_t first = 0; first < blocks; first += Threads / draw_lanes) {
    const std::int64_t block = first + thread / draw_lanes, begin = block * draw_block;
    const std::int64_t end = begin + draw_block < a.vocabulary ? begin + draw_block : a.vocabulary;
    float sum = 0.0F;
    for (std::int64_t j = begin + thread % draw_lanes; j < end; j += draw_lanes)
      sum = __fadd_rn(sum, portable_exp(scaled_logit(logits[j], top, scale)));
#pragma unroll
    for (int bits = 1; bits < draw_lanes; bits *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(whole_warp, sum, bits));
    if (block < blocks && thread % draw_lanes == 0) shared.sums[block] = sum;
  }
  __syncthreads();
  if (thread == 0) {
    double total = 0.0;
    for (std::int64_t b = 0; b < blocks; ++b) total += static_cast<double>(shared.sums[b]);
    const double target = philox_uniform(key.seed, sampling_stream, key.step, key.index << 32U | key.position) * total;
    double before = 0.0;
    std::int64_t b = 0;
    while (b + 1 < blocks && before + static_cast<double>(shared.sums[b]) <= target)
      before += static_cast<double>(shared.sums[b++]);
    shared.block = b;
    shared.before = before;
    shared.target = target;
    shared.total = total;
  }
  __syncthreads();
  const std::int64_t begin = shared.block * draw_block;
  const int count = static_cast<int>(a.vocabulary - begin < draw_block ? a.vocabulary - begin : draw_block);
  if (thread < count) shared.terms[thread] = portable_exp(scaled_logit(logits[begin + thread], top, scale));
  __syncthreads();
  if (thread != 0) return;
  std::int64_t chosen = -1;
  if (greedy) {
    chosen = largest.id;
  } else {
    double before = shared.before;
    for (int j = 0; j < count; ++j) {
      if (shared.terms[j] <= 0.0F) continue;
      chosen = begin + j;
      before += static_cast<double>(shared.terms[j]);
      if (before > shared.target) break;
    }
    // Rounding can leave the target at or behind the end of a block without a possible id: then the one before.
    for (std::int64_t j = begin; chosen < 0 && j-- > 0;)
      if (exp(static_cast<double>(scaled_logit(logits[j], top, scale))) > 0.0) chosen = j;
    if (chosen < 0) chosen = largest.id;
  }
  a.tokens[row] = static_cast<std::int32_t>(chosen);
  a.log_probs[row] =
      static_cast<float>(static_cast<double>(scaled_logit(logits[chosen], top, scale)) - log(shared.total));
}

inline cudaError_t draw(const Draw& a, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  if (a.vocabulary <= 0 || a.vocabulary > draw_vocabulary) return cudaErrorInvalidValue;
  return launch(draw_kernel<draw_threads>, dim3(static_cast<unsigned>(a.rows)), dim3(draw_threads), stream, a);
}

}  // namespace rlalgo::cuda
