// SwiGLU and GeGLU, forward and backward (kernels.hpp): element by element.
//
//   act(x) = x·σ(z),   act'(x) = σ(z)(1 + x(1 − σ(z))·z'),   z = x for silu,   z = 2√(2/π)(x + 0.044715 x³) for GELU in its
//   form with tanh, as ½(1 + tanh u) = σ(2u): without the cancellation of 1 + tanh
// Sources: Shazeer, arXiv 2002.05202, eq. 6; Hendrycks & Gimpel, arXiv 1606.08415, section 2.
// act(gate) and ∂y·up are rounded to the element, as separate operators do.
#pragma once

#include <cstdint>
#include <numeric>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr int gated_threads = 256;

// Element i of gate or up.
template <class A>
__device__ inline std::int64_t gated_place(const A& a, std::int64_t i) {
  return a.width == 0 ? i : i / a.width * a.stride + i % a.width;
}

struct Activated {
  float value, slope;
};

__device__ inline Activated activate(float x, Activation activation) {
  constexpr float root = 2.0F * 0.7978845608028654F, cubic = 0.044715F;
  const bool silu = activation == Activation::silu;
  const float z = silu ? x : root * (x + cubic * x * x * x), along = silu ? 1.0F : root * (1.0F + 3.0F * cubic * x * x);
  const float share = 1.0F / (1.0F + expf(-z));
  return {x * share, share * (1.0F + x * (1.0F - share) * along)};
}

template <class T, int N>
__global__ void __launch_bounds__(gated_threads) gated_kernel(Gated a) {
  using Run = Neighbours<T, N>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * gated_threads + threadIdx.x) * N;
  if (i >= a.count) return;
  const std::int64_t at = gated_place(a, i);
  const Run gate = *reinterpret_cast<const Run*>(static_cast<const T*>(a.gate) + at),
            up = *reinterpret_cast<const Run*>(static_cast<const T*>(a.up) + at);
  Run out;
#pragma unroll
  for (int k = 0; k < N; ++k)
    out.at[k] = rounded<T>(widen(rounded<T>(activate(widen(gate.at[k]), a.activation).value)) * widen(up.at[k]));
  *reinterpret_cast<Run*>(static_cast<T*>(a.out) + i) = out;
}

template <class T, int N>
__global__ void __launch_bounds__(gated_threads) gated_gradient_kernel(GatedGradient a) {
  using Run = Neighbours<T, N>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * gated_threads + threadIdx.x) * N;
  if (i >= a.count) return;
  const std::int64_t at = gated_place(a, i);
  Run& gate = *reinterpret_cast<Run*>(static_cast<T*>(a.gate) + at);
  Run& up = *reinterpret_cast<Run*>(static_cast<T*>(a.up) + at);
  const Run grad = *reinterpret_cast<const Run*>(static_cast<const T*>(a.grad) + i), g = gate, u = up;
  Run of_gate, of_up;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const Activated y = activate(widen(g.at[k]), a.activation);
    of_up.at[k] = rounded<T>(widen(grad.at[k]) * widen(rounded<T>(y.value)));
    of_gate.at[k] = rounded<T>(widen(rounded<T>(widen(grad.at[k]) * widen(u.at[k]))) * y.slope);
  }
  gate = of_gate;
  up = of_up;
}

namespace detail {
// Elements that lie side by side; of rows apart, what divides width and stride.
template <class A>
inline std::int64_t gated_run(const A& a) {
  return a.width == 0 ? a.count : std::gcd(a.width, a.stride);
}
template <int N>
inline dim3 gated_grid(std::int64_t count) {
  return dim3(static_cast<unsigned>((count / N + gated_threads - 1) / gated_threads));
}
}  // namespace detail

inline cudaError_t gated(const Gated& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const auto kernel = [&]<class T, int N>() {
    return launch(gated_kernel<T, N>, detail::gated_grid<N>(a.count), dim3(gated_threads), stream, a);
  };
  return in_runs(a.element, detail::gated_run(a), kernel, a.gate, a.up, a.out);
}

inline cudaError_t gated_gradient(const GatedGradient& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  const auto kernel = [&]<class T, int N>() {
    return launch(gated_gradient_kernel<T, N>, detail::gated_grid<N>(a.count), dim3(gated_threads), stream, a);
  };
  return in_runs(a.element, detail::gated_run(a), kernel, a.gate, a.up, a.grad);
}

}  // namespace rlalgo::cuda
