// Rotary position embedding, in place (kernels.hpp): a thread for each pair of elements.
//
// Source: Su et al., arXiv 2104.09864, eq. 34 in the pairing of transformers' rotate_half. Each product is rounded before
// the sum, as separate operators do.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr int rotate_threads = 256;

template <class T>
__global__ void __launch_bounds__(rotate_threads) rotate_kernel(Rotate a) {
  const std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * rotate_threads + threadIdx.x;
  if (pair >= a.tokens * a.heads * a.half) return;
  const std::int64_t i = pair % a.half, head = pair / a.half, token = head / a.heads;  // head of all tokens
  T* const x = static_cast<T*>(a.x) + head * a.width + (a.interleaved ? 2 * i : i);
  const std::int64_t apart = a.interleaved ? 1 : a.half;
  const float cosine = a.cosine[token * a.half + i];
  const float sine = a.backward ? -a.sine[token * a.half + i] : a.sine[token * a.half + i];
  const float low = widen(x[0]), high = widen(x[apart]);
  x[0] = rounded<T>(__fsub_rn(__fmul_rn(low, cosine), __fmul_rn(high, sine)));
  x[apart] = rounded<T>(__fadd_rn(__fmul_rn(high, cosine), __fmul_rn(low, sine)));
}

inline cudaError_t rotate(const Rotate& a, cudaStream_t stream) {
  const std::int64_t pairs = a.tokens * a.heads * a.half;
  if (pairs == 0) return cudaSuccess;
  return launch(a.element == Element::float32 ? rotate_kernel<float> : rotate_kernel<Bfloat16>,
                dim3(static_cast<unsigned>((pairs + rotate_threads - 1) / rotate_threads)), dim3(rotate_threads),
                stream, a);
}

}  // namespace rlalgo::cuda
