// Queries, keys and values of one joined product (kernels.hpp): norm, rotation and the writes to pages of a head are one warp's.
//
// Sources: those of rms_norm.cuh and rotate.cuh, whose numbers these are: what is normalised is rounded to the element before it is
// rotated, each product before the sum, and what goes to pages in float8 is rounded to the element first.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/float8.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int heads_warps = 4;

struct HeadsShared {
  float of[heads_warps][heads_width];
};

// T: of the product and of queries; Stored: of the pages.
template <class T, class Stored>
__global__ void __launch_bounds__(32 * heads_warps) heads_kernel(Heads a) {
  RLALGO_CUDA_SHARED(HeadsShared, shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            dim = static_cast<int>(a.head_dim);
  const std::int64_t all = a.heads + 2 * a.kv_heads, item = static_cast<std::int64_t>(blockIdx.x) * heads_warps + warp;
  if (item >= a.rows * all) return;
  const std::int64_t row = item / all, head = item % all, position = a.positions[row];
  const bool query = head < a.heads, key = !query && head < a.heads + a.kv_heads;
  T* to = nullptr;
  Stored* page = nullptr;
  if (query) {
    to = static_cast<T*>(a.q) + (row * a.heads + head) * dim;
  } else if (position >= 0) {
    const std::int64_t kv = head - a.heads - (key ? 0 : a.kv_heads);
    page = static_cast<Stored*>(a.arena) + a.page[row] * a.pages.page_stride + a.place[row] * a.pages.position_stride +
           kv * a.pages.head_stride + (key ? a.pages.key_offset : a.pages.value_offset);
  }
  if (to == nullptr && page == nullptr) return;
  const auto put = [&](int d, float value) {
    if (query)
      to[d] = rounded<T>(value);
    else
      page[d] = rounded<Stored>(widen(rounded<T>(value)));
  };
  if (position < 0) {
    for (int d = lane; d < dim; d += 32) put(d, 0.0F);
    return;
  }
  const T* const from = static_cast<const T*>(a.joined) + item * dim;
  const T* const bias = a.bias == nullptr ? nullptr : static_cast<const T*>(a.bias) + head * dim;
  const auto given = [&](int d) {
    return bias == nullptr ? widen(from[d]) : widen(rounded<T>(widen(from[d]) + widen(bias[d])));
  };
  if (!query && !key) {
    for (int d = lane; d < dim; d += 32) put(d, given(d));
    return;
  }
  float(&values)[heads_width] = shared.of[warp];
  const T* const weight = static_cast<const T*>(query ? a.q_weight : a.k_weight);
  float squares = 0.0F;
  for (int d = lane; d < dim; d += 32) {
    values[d] = given(d);
    squares += values[d] * values[d];
  }
  if (weight != nullptr) {
    const float scale = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(dim) + a.epsilon);
    for (int d = lane; d < dim; d += 32) {
      const float normed = values[d] * scale;
      const float kept = a.one_more || a.once ? normed : widen(rounded<T>(normed));
      values[d] = widen(rounded<T>(kept * (a.one_more ? 1.0F + widen(weight[d]) : widen(weight[d]))));
    }
  }
  __syncwarp();
  const int half = a.cosine == nullptr ? 0 : static_cast<int>(a.half);
  for (int i = lane; i < half; i += 32) {
    const int first = a.interleaved ? 2 * i : i, second = a.interleaved ? first + 1 : i + half;
    const float cosine = a.cosine[position * half + i], sine = a.sine[position * half + i];
    const float low = values[first], high = values[second];
    put(first, __fsub_rn(__fmul_rn(low, cosine), __fmul_rn(high, sine)));
    put(second, __fadd_rn(__fmul_rn(high, cosine), __fmul_rn(low, sine)));
  }
  for (int d = 2 * half + lane; d < dim; d += 32) put(d, values[d]);
}

inline cudaError_t heads(const Heads& a, cudaStream_t stream) {
  const std::int64_t items = a.rows * (a.heads + 2 * a.kv_heads);
  if (items == 0 || a.head_dim == 0) return cudaSuccess;
  if (a.head_dim > heads_width || 2 * a.half > a.head_dim) return cudaErrorInvalidValue;
  const bool wide = a.element == Element::float32;
  void (*const eight)(Heads) = wide ? heads_kernel<float, Float8> : heads_kernel<Bfloat16, Float8>;
  void (*const same)(Heads) = wide ? heads_kernel<float, float> : heads_kernel<Bfloat16, Bfloat16>;
  return launch(a.pages.float8 ? eight : same, dim3(static_cast<unsigned>((items + heads_warps - 1) / heads_warps)),
                dim3(32 * heads_warps), stream, a);
}

}  // namespace rlalgo::cuda
