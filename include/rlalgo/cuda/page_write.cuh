// Keys and values of rows to their places in pages (kernels.hpp): a thread for each element of both.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/float8.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr int page_write_threads = 256;

// T: of what is written; Stored: of the pages.
template <class T, class Stored>
__global__ void __launch_bounds__(page_write_threads) page_write_kernel(PageWrite a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * page_write_threads + threadIdx.x;
  const std::int64_t width = a.heads * a.head_dim;
  if (i >= a.rows * width) return;
  const std::int64_t row = i / width, head = i % width / a.head_dim, d = i % a.head_dim;
  Stored* const to = static_cast<Stored*>(a.arena) + a.page[row] * a.pages.page_stride +
                     a.place[row] * a.pages.position_stride + head * a.pages.head_stride + d;
  to[a.pages.key_offset] = rounded<Stored>(widen(static_cast<const T*>(a.k)[i]));
  to[a.pages.value_offset] = rounded<Stored>(widen(static_cast<const T*>(a.v)[i]));
}

inline cudaError_t page_write(const PageWrite& a, cudaStream_t stream) {
  const std::int64_t elements = a.rows * a.heads * a.head_dim;
  if (elements == 0) return cudaSuccess;
  const bool wide = a.element == Element::float32;
  void (*const eight)(PageWrite) = wide ? page_write_kernel<float, Float8> : page_write_kernel<Bfloat16, Float8>;
  void (*const same)(PageWrite) = wide ? page_write_kernel<float, float> : page_write_kernel<Bfloat16, Bfloat16>;
  return launch(a.pages.float8 ? eight : same,
                dim3(static_cast<unsigned>((elements + page_write_threads - 1) / page_write_threads)),
                dim3(page_write_threads), stream, a);
}

}  // namespace rlalgo::cuda
