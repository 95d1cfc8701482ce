// Sums of rows that belong together, in a fixed order (kernels.hpp): what index_add does by atomics.
//
// A block for a place, and for 256 columns; only the first place of a segment works, so that each sum is one thread's.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr int segment_sum_threads = 256;

template <class T>
__global__ void __launch_bounds__(segment_sum_threads) segment_sum_kernel(SegmentSum a) {
  const std::int64_t first = blockIdx.x, segment = a.segment[first];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * segment_sum_threads + threadIdx.x;
  if (column >= a.width || (first > 0 && a.segment[first - 1] == segment)) return;
  T& out = static_cast<T*>(a.out)[segment * a.width + column];
  float sum = widen(out);
  for (std::int64_t place = first; place < a.places && a.segment[place] == segment; ++place)
    sum += widen(static_cast<const T*>(a.x)[a.order[place] * a.width + column]);
  out = rounded<T>(sum);
}

inline cudaError_t segment_sum(const SegmentSum& a, cudaStream_t stream) {
  if (a.places == 0 || a.width == 0) return cudaSuccess;
  return launch(a.element == Element::float32 ? segment_sum_kernel<float> : segment_sum_kernel<Bfloat16>,
                dim3(static_cast<unsigned>(a.places),
                     static_cast<unsigned>((a.width + segment_sum_threads - 1) / segment_sum_threads)),
                dim3(segment_sum_threads), stream, a);
}

}  // namespace rlalgo::cuda
