// RMSNorm, forward and backward (kernels.hpp): a warp for a row, or a block where rows are wide.
//
// Source: Zhang & Sennrich, arXiv 1910.07467, eq. 4; rounding as transformers' LlamaRMSNorm and Gemma3RMSNorm.
// A thread sums its elements in their order, then lanes and warps are added; ∂w is summed over chunks of rows, then over
// chunks.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int rms_norm_warps = 8;               // of a block
inline constexpr std::int64_t rms_norm_narrow = 1024;  // rows up to this width are a warp's
inline constexpr int rms_norm_weight_rows = 8;         // of a block that sums ∂w

// f(i, first) of each run of N neighbours that begins at element i, of thread `thread` of `threads`.
template <int N, class F>
__device__ inline void each_run(std::int64_t width, int thread, int threads, F&& f) {
  for (std::int64_t i = static_cast<std::int64_t>(thread) * N; i < width; i += static_cast<std::int64_t>(threads) * N)
    f(i);
}

// The row of this thread's warp or block; false: beyond the last.
template <int Warps>
__device__ inline bool row_of_thread(std::int64_t rows, std::int64_t& row, int& thread) {
  row = Warps == 1 ? static_cast<std::int64_t>(blockIdx.x) * rms_norm_warps + threadIdx.x / 32 : blockIdx.x;
  thread = static_cast<int>(Warps == 1 ? threadIdx.x % 32 : threadIdx.x);
  return row < rows;
}

template <class T, int N, int Warps>
__global__ void __launch_bounds__(32 * rms_norm_warps) rms_norm_kernel(RmsNorm a) {
  using Run = Neighbours<T, N>;
  RLALGO_CUDA_SHARED(WarpSums<Warps>, sums);
  std::int64_t row = 0;
  int thread = 0;
  if (!row_of_thread<Warps>(a.rows, row, thread)) return;
  T* const x = static_cast<T*>(a.x) + row * a.width;
  const T* const residual = a.residual == nullptr ? nullptr : static_cast<const T*>(a.residual) + row * a.width;
  float squares = 0.0F;
  each_run<N>(a.width, thread, 32 * Warps, [&](std::int64_t i) {
    Run run = *reinterpret_cast<const Run*>(x + i);
    if (residual != nullptr) {
      const Run more = *reinterpret_cast<const Run*>(residual + i);
#pragma unroll
      for (int k = 0; k < N; ++k) run.at[k] = rounded<T>(widen(run.at[k]) + widen(more.at[k]));
      *reinterpret_cast<Run*>(x + i) = run;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) squares += widen(run.at[k]) * widen(run.at[k]);
  });
  const float scale = 1.0F / sqrtf(block_sum<Warps>(squares, sums) / static_cast<float>(a.width) + a.epsilon);
  if (a.scale != nullptr && thread == 0) a.scale[row] = scale;
  const T* const weight = static_cast<const T*>(a.weight);
  T* const y = static_cast<T*>(a.y) + row * a.width;
  each_run<N>(a.width, thread, 32 * Warps, [&](std::int64_t i) {
    const Run run = *reinterpret_cast<const Run*>(x + i), w = *reinterpret_cast<const Run*>(weight + i);
    Run out;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float normed = widen(run.at[k]) * scale;
      const float kept = a.one_more || a.once ? normed : widen(rounded<T>(normed));
      out.at[k] = rounded<T>(kept * (a.one_more ? 1.0F + widen(w.at[k]) : widen(w.at[k])));
    }
    *reinterpret_cast<Run*>(y + i) = out;
  });
}

template <class T, int N, int Warps>
__global__ void __launch_bounds__(32 * rms_norm_warps) rms_norm_input_gradient(RmsNormGradient a) {
  using Run = Neighbours<T, N>;
  RLALGO_CUDA_SHARED(WarpSums<Warps>, sums);
  std::int64_t row = 0;
  int thread = 0;
  if (!row_of_thread<Warps>(a.rows, row, thread)) return;
  const T* const grad = static_cast<const T*>(a.grad_y) + row * a.width;
  const T* const x = static_cast<const T*>(a.x) + row * a.width;
  const T* const weight = static_cast<const T*>(a.weight);
  T* const out = static_cast<T*>(a.grad_x) + row * a.width;
  const float more = a.one_more ? 1.0F : 0.0F, r = a.scale[row];
  float along = 0.0F;
  each_run<N>(a.width, thread, 32 * Warps, [&](std::int64_t i) {
    const Run g = *reinterpret_cast<const Run*>(grad + i), v = *reinterpret_cast<const Run*>(x + i),
              w = *reinterpret_cast<const Run*>(weight + i);
#pragma unroll
    for (int k = 0; k < N; ++k) along += widen(g.at[k]) * (more + widen(w.at[k])) * widen(v.at[k]);
  });
  const float pull = block_sum<Warps>(along, sums) * r * r * r / static_cast<float>(a.width);
  each_run<N>(a.width, thread, 32 * Warps, [&](std::int64_t i) {
    const Run g = *reinterpret_cast<const Run*>(grad + i), v = *reinterpret_cast<const Run*>(x + i),
              w = *reinterpret_cast<const Run*>(weight + i);
    Run sum = {};
    if (a.add) sum = *reinterpret_cast<const Run*>(out + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float change = widen(g.at[k]) * (more + widen(w.at[k])) * r - widen(v.at[k]) * pull;
      sum.at[k] = rounded<T>(a.add ? change + widen(sum.at[k]) : change);
    }
    *reinterpret_cast<Run*>(out + i) = sum;
  });
}

struct WeightRows {
  float of[rms_norm_weight_rows][32 + 1];
};

// Σ ∂y·x·r over a chunk of rows, of 32 columns.
template <class T>
__global__ void __launch_bounds__(32 * rms_norm_weight_rows) rms_norm_weight_chunks(RmsNormGradient a) {
  RLALGO_CUDA_SHARED(WeightRows, sums);
  const int lane = static_cast<int>(threadIdx.x % 32), line = static_cast<int>(threadIdx.x / 32);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + lane, chunk = blockIdx.y, chunks = gridDim.y;
  const std::int64_t begin = a.rows * chunk / chunks, end = a.rows * (chunk + 1) / chunks;
  float sum = 0.0F;
  if (column < a.width)
    for (std::int64_t row = begin + line; row < end; row += rms_norm_weight_rows)
      sum += widen(static_cast<const T*>(a.grad_y)[row * a.width + column]) *
             widen(static_cast<const T*>(a.x)[row * a.width + column]) * a.scale[row];
  sums.of[line][lane] = sum;
  __syncthreads();
  if (line != 0 || column >= a.width) return;
#pragma unroll
  for (int i = 1; i < rms_norm_weight_rows; ++i) sum += sums.of[i][lane];
  a.partial[chunk * a.width + column] = sum;
}

template <class T>
__global__ void __launch_bounds__(256) rms_norm_weight_sum(RmsNormGradient a, std::int64_t chunks) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (column >= a.width) return;
  float sum = 0.0F;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += a.partial[chunk * a.width + column];
  T& out = static_cast<T*>(a.grad_weight)[column];
  out = rounded<T>(widen(out) + sum);
}

namespace detail {

inline dim3 rms_norm_grid(std::int64_t rows, bool narrow) {
  return dim3(static_cast<unsigned>(narrow ? (rows + rms_norm_warps - 1) / rms_norm_warps : rows));
}

template <class T, int N>
inline cudaError_t rms_norm_of(const RmsNorm& a, cudaStream_t stream) {
  const bool narrow = a.width <= rms_norm_narrow;
  return launch(narrow ? rms_norm_kernel<T, N, 1> : rms_norm_kernel<T, N, rms_norm_warps>,
                rms_norm_grid(a.rows, narrow), dim3(32 * rms_norm_warps), stream, a);
}

template <class T, int N>
inline cudaError_t rms_norm_gradient_of(const RmsNormGradient& a, cudaStream_t stream) {
  const bool narrow = a.width <= rms_norm_narrow;
  cudaError_t error = launch(narrow ? rms_norm_input_gradient<T, N, 1> : rms_norm_input_gradient<T, N, rms_norm_warps>,
                             rms_norm_grid(a.rows, narrow), dim3(32 * rms_norm_warps), stream, a);
  if (error != cudaSuccess || a.grad_weight == nullptr) return error;
  const std::int64_t chunks = rms_norm_chunks(a.rows);
  error =
      launch(rms_norm_weight_chunks<T>, dim3(static_cast<unsigned>((a.width + 31) / 32), static_cast<unsigned>(chunks)),
             dim3(32 * rms_norm_weight_rows), stream, a);
  if (error != cudaSuccess) return error;
  return launch(rms_norm_weight_sum<T>, dim3(static_cast<unsigned>((a.width + 255) / 256)), dim3(256), stream, a,
                chunks);
}

}  // namespace detail

inline cudaError_t rms_norm(const RmsNorm& a, cudaStream_t stream) {
  if (a.rows == 0 || a.width == 0) return cudaSuccess;
  const auto kernel = [&]<class T, int N>() { return detail::rms_norm_of<T, N>(a, stream); };
  return in_runs(a.element, a.width, kernel, a.x, a.residual, a.weight, a.y);
}

inline cudaError_t rms_norm_gradient(const RmsNormGradient& a, cudaStream_t stream) {
  if (a.rows == 0 || a.width == 0) return cudaSuccess;
  const auto kernels = [&]<class T, int N>() { return detail::rms_norm_gradient_of<T, N>(a, stream); };
  return in_runs(a.element, a.width, kernels, a.x, a.grad_y, a.weight, a.grad_x);
}

}  // namespace rlalgo::cuda
