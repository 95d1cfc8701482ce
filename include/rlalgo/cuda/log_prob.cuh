// Log-probs, entropies and their gradient over tiles of a vocabulary (kernels.hpp): a block for each row of a tile.
//
//   A state (m, z, e) of some logits: m their maximum, z = Σ exp(l − m), e = Σ exp(l − m)(l − m). Two are merged by
//   M = max(m, m'):  z = z·f + z'·f',  e = (e + (m − M)z)·f + (e' + (m' − M)z')·f',  f = exp(m − M).
//   log_sum = m + log z,  entropy = log z − e / z
// Source: the running softmax of Milakov & Gimelshein, arXiv 1805.02867, algorithm 3, with the moment beside.
// A thread takes every 256th logit in their order; lanes, warps and tiles are merged in theirs. A logit of −∞ weighs nothing;
// NaN makes its row NaN.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int log_prob_threads = 256;

struct LogitSums {
  float top = -INFINITY, powers = 0.0F, moment = 0.0F;
};

__device__ inline LogitSums merged(const LogitSums& a, const LogitSums& b) {
  LogitSums out;
  out.top = fmaxf(a.top, b.top);
  const auto add = [&out](const LogitSums& one) {
    if (one.top == -INFINITY && one.powers == 0.0F) return;
    const float shift = one.top - out.top, factor = expf(shift);
    out.powers += one.powers * factor;
    out.moment += (one.moment + shift * one.powers) * factor;
  };
  add(a);
  add(b);
  return out;
}

struct LogitShared {
  LogitSums of_warp[log_prob_threads / 32];
};

template <int Threads>
__global__ void __launch_bounds__(Threads) log_prob_tile_kernel(LogProbTile a) {
  RLALGO_CUDA_SHARED(LogitShared, shared);
  const std::int64_t row = blockIdx.x;
  const float* const logits = a.logits + row * a.stride;
  LogitSums sums;
  for (std::int64_t j = threadIdx.x; j < a.columns; j += Threads) {
    const float l = logits[j];
    if (l == -INFINITY) continue;
    if (l > sums.top) sums = merged(sums, {l, 0.0F, 0.0F});
    const float below = l - sums.top, power = expf(below);
    sums.powers += power;
    sums.moment += power * below;
  }
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2)
    sums = merged(sums, {__shfl_xor_sync(whole_warp, sums.top, bits), __shfl_xor_sync(whole_warp, sums.powers, bits),
                         __shfl_xor_sync(whole_warp, sums.moment, bits)});
  if (threadIdx.x % 32 == 0) shared.of_warp[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float* const state = a.state + row * 4;
  const std::int64_t target = a.targets[row] - a.first_column;
  const bool first = a.first_column == 0;
  if (first) state[3] = 0.0F;
  if (target >= 0 && target < a.columns) state[3] = logits[target];
  LogitSums all;
  if (!first) all = {state[0], state[1], state[2]};
  for (int w = 0; w < Threads / 32; ++w) all = merged(all, shared.of_warp[w]);
  state[0] = all.top;
  state[1] = all.powers;
  state[2] = all.moment;
}

template <int Threads>
__global__ void __launch_bounds__(Threads) log_prob_finish_kernel(LogProbFinish a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * Threads + threadIdx.x;
  if (row >= a.rows) return;
  const float* const state = a.state + row * 4;
  const float log_powers = logf(state[1]), log_sum = state[0] + log_powers;
  if (a.log_sum != nullptr) a.log_sum[row] = log_sum;
  if (a.log_prob != nullptr) a.log_prob[row] = state[3] - log_sum;
  if (a.entropy != nullptr) a.entropy[row] = log_powers - state[2] / state[1];
  if (a.greedy != nullptr) a.greedy[row] = state[3] >= state[0] ? 1.0F : 0.0F;
}

template <class T>
__global__ void __launch_bounds__(log_prob_threads) log_prob_gradient_kernel(LogProbGradient a) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.y) * log_prob_threads + threadIdx.x, row = blockIdx.x;
  if (j >= a.columns) return;
  const float log_p = a.logits[row * a.stride + j] - a.log_sum[row], p = expf(log_p), g = a.grad_log_prob[row];
  float grad = (a.targets[row] - a.first_column == j ? g : 0.0F) - g * p;
  if (a.grad_entropy != nullptr && p > 0.0F) grad -= a.grad_entropy[row] * p * (log_p + a.entropy[row]);
  static_cast<T*>(a.grad)[row * a.grad_stride + j] = rounded<T>(grad);
}

inline cudaError_t log_prob_tile(const LogProbTile& a, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  return launch(log_prob_tile_kernel<log_prob_threads>, dim3(static_cast<unsigned>(a.rows)), dim3(log_prob_threads),
                stream, a);
}

inline cudaError_t log_prob_finish(const LogProbFinish& a, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  return launch(log_prob_finish_kernel<log_prob_threads>,
                dim3(static_cast<unsigned>((a.rows + log_prob_threads - 1) / log_prob_threads)), dim3(log_prob_threads),
                stream, a);
}

inline cudaError_t log_prob_gradient(const LogProbGradient& a, cudaStream_t stream) {
  if (a.rows == 0 || a.columns == 0) return cudaSuccess;
  return launch(
      a.element == Element::float32 ? log_prob_gradient_kernel<float> : log_prob_gradient_kernel<Bfloat16>,
      dim3(static_cast<unsigned>(a.rows), static_cast<unsigned>((a.columns + log_prob_threads - 1) / log_prob_threads)),
      dim3(log_prob_threads), stream, a);
}

}  // namespace rlalgo::cuda
