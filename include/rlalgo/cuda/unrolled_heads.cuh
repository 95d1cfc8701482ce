// What attention over a whole batch reads of queries, keys and values, and the gradient of that (kernels.hpp): norm per head, rotation and
// the order of the keys in one launch, as few lanes to a head as hold it.
//
// Sources: those of rms_norm.cuh and rotate.cuh, whose numbers these are: what is normalised is rounded to the element before it is
// rotated, each product before the sum. The gradient rounds once, at its end; a row's keys are summed in their order, and the weights'
// gradient over the heads of a thread's group, over the groups of a block, over the blocks.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int unrolled_heads_threads = 256;

// N pairs of elements of a head, which are rotated together: (first + i, second + i). The elements that are not rotated are pairs, too.
struct HeadPairs {
  int first, second;
  bool rotated;
};
template <int N>
__device__ inline HeadPairs head_pairs(const UnrolledHeads& a, int pair) {
  const int half = static_cast<int>(a.half), rest = static_cast<int>(a.head_dim) / 2 - half;
  if (pair >= half) return {half + pair, half + pair + rest, false};
  return a.interleaved ? HeadPairs{2 * pair, 2 * pair + 1, true} : HeadPairs{pair, pair + half, true};
}

// Σ over so many neighbouring lanes, a power of two, the same in each.
__device__ inline float lanes_sum(float x, int lanes) {
  for (int bits = lanes / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(whole_warp, x, bits);
  return x;
}

// 1/√(mean x² + ε) of a head, by its lanes; all lanes of a warp call it. Of no head x is null.
template <class T, int N>
__device__ inline float head_scale(const UnrolledHeads& a, const T* x, int lane, int lanes) {
  using Run = Neighbours<T, N>;
  float squares = 0.0F;
  if (x != nullptr)
    for (int pair = lane * N; pair < a.head_dim / 2; pair += lanes * N) {
      const HeadPairs at = head_pairs<N>(a, pair);
      const Run low = *reinterpret_cast<const Run*>(x + at.first), high = *reinterpret_cast<const Run*>(x + at.second);
#pragma unroll
      for (int k = 0; k < N; ++k)
        squares += widen(low.at[k]) * widen(low.at[k]) + widen(high.at[k]) * widen(high.at[k]);
    }
  return 1.0F / sqrtf(lanes_sum(squares, lanes) / static_cast<float>(a.head_dim) + a.epsilon);
}

template <class T>
__device__ inline float head_normed(const UnrolledHeads& a, float x, float scale, T weight) {
  const float normed = x * scale;
  const float kept = a.one_more || a.once ? normed : widen(rounded<T>(normed));
  return widen(rounded<T>(kept * (a.one_more ? 1.0F + widen(weight) : widen(weight))));
}

template <class T, int N>
__global__ void __launch_bounds__(unrolled_heads_threads) unrolled_heads_kernel(UnrolledHeads a, int lanes) {
  using Run = Neighbours<T, N>;
  const int kind = static_cast<int>(blockIdx.y), dim = static_cast<int>(a.head_dim),
            lane = static_cast<int>(threadIdx.x) % lanes;
  const auto heads = static_cast<std::uint32_t>(kind == 0 ? a.heads : a.kv_heads),
             rows = static_cast<std::uint32_t>(kind == 0 ? a.rows : a.keys);
  const std::uint32_t item = blockIdx.x * (unrolled_heads_threads / lanes) + threadIdx.x / lanes;
  const bool there = item < rows * heads;
  const std::int64_t row = there ? item / heads : 0,
                     token = kind == 0 || a.tokens == nullptr || !there ? row : a.tokens[row];
  const T* const x =
      there ? static_cast<const T*>(a.from[kind]) + token * a.stride[kind] + item % heads * dim : nullptr;
  const T* const weight = kind == 2 ? nullptr : static_cast<const T*>(a.weight[kind]);
  const float scale = weight == nullptr ? 1.0F : head_scale<T, N>(a, x, lane, lanes);
  if (!there) return;
  T* const to = static_cast<T*>(a.to[kind]) + static_cast<std::int64_t>(item) * dim;
  for (int pair = lane * N; pair < dim / 2; pair += lanes * N) {
    const HeadPairs at = head_pairs<N>(a, pair);
    Run low = *reinterpret_cast<const Run*>(x + at.first), high = *reinterpret_cast<const Run*>(x + at.second);
    if (weight != nullptr) {
      const Run w = *reinterpret_cast<const Run*>(weight + at.first),
                v = *reinterpret_cast<const Run*>(weight + at.second);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        low.at[k] = rounded<T>(head_normed(a, widen(low.at[k]), scale, w.at[k]));
        high.at[k] = rounded<T>(head_normed(a, widen(high.at[k]), scale, v.at[k]));
      }
    }
    if (at.rotated && kind != 2) {
      const float* const cosines = a.cosine + token * a.half + pair;
      const float* const sines = a.sine + token * a.half + pair;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float cosine = cosines[k], sine = sines[k], x0 = widen(low.at[k]), x1 = widen(high.at[k]);
        low.at[k] = rounded<T>(__fsub_rn(__fmul_rn(x0, cosine), __fmul_rn(x1, sine)));
        high.at[k] = rounded<T>(__fadd_rn(__fmul_rn(x1, cosine), __fmul_rn(x0, sine)));
      }
    }
    *reinterpret_cast<Run*>(to + at.first) = low;
    *reinterpret_cast<Run*>(to + at.second) = high;
  }
}

// Of the weights' gradient, a head's elements of each group of lanes.
struct UnrolledHeadsSums {
  float of[4096];
};

// Two blocks at a time: registers enough for all that a thread holds.
template <class T, int N>
__global__ void __launch_bounds__(unrolled_heads_threads, 2)
    unrolled_heads_input_gradient(UnrolledHeadsGradient g, int lanes) {
  using Run = Neighbours<T, N>;
  // Pairs of a head are so many of a lane's at most: where they are not read in runs a lane may have more than one.
  constexpr int each = N == 1 ? heads_width / 2 / 32 : 1;
  RLALGO_CUDA_SHARED(UnrolledHeadsSums, sums);
  const UnrolledHeads& a = g.of;
  const int kind = static_cast<int>(blockIdx.y), dim = static_cast<int>(a.head_dim), pairs = dim / 2,
            lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes,
            groups = unrolled_heads_threads / lanes;
  const auto heads = static_cast<std::uint32_t>(kind == 0 ? a.heads : a.kv_heads),
             items = static_cast<std::uint32_t>(a.rows) * heads;
  const T* const weight = kind == 2 ? nullptr : static_cast<const T*>(a.weight[kind]);
  const bool of_weight = kind != 2 && g.grad_weight[kind] != nullptr;
  float weight_low[each][N] = {}, weight_high[each][N] = {};
  for (std::uint32_t begin = blockIdx.x * groups; begin < items; begin += gridDim.x * groups) {
    const std::uint32_t item = begin + group;
    const bool there = item < items;
    const std::int64_t row = there ? item / heads : 0, head = item % heads;
    const T* const x = there ? static_cast<const T*>(a.from[kind]) + row * a.stride[kind] + head * dim : nullptr;
    const bool own = kind == 0 || g.first == nullptr;
    const std::int64_t first = own || !there ? row : g.first[row], last = own || !there ? row + 1 : g.first[row + 1];
    const float scale = weight == nullptr ? 1.0F : head_scale<T, N>(a, x, lane, lanes);
    float low[each][N] = {}, high[each][N] = {};  // ∂ of what was rotated
    float along = 0.0F;                           // Σ w·∂·x
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int pair = (lane + e * lanes) * N;
      if (!there || pair >= pairs) continue;
      const HeadPairs at = head_pairs<N>(a, pair);
      for (std::int64_t place = first; place < last; ++place) {
        const T* const from =
            static_cast<const T*>(g.grad[kind]) + ((own ? place : g.order[place]) * heads + head) * dim;
        const Run more = *reinterpret_cast<const Run*>(from + at.first),
                  above = *reinterpret_cast<const Run*>(from + at.second);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          low[e][k] += widen(more.at[k]);
          high[e][k] += widen(above.at[k]);
        }
      }
      if (at.rotated && kind != 2) {
        const float* const cosines = a.cosine + row * a.half + pair;
        const float* const sines = a.sine + row * a.half + pair;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float cosine = cosines[k], sine = sines[k], y0 = low[e][k], y1 = high[e][k];
          low[e][k] = __fadd_rn(__fmul_rn(y0, cosine), __fmul_rn(y1, sine));
          high[e][k] = __fsub_rn(__fmul_rn(y1, cosine), __fmul_rn(y0, sine));
        }
      }
      if (weight == nullptr) continue;
      const Run x0 = *reinterpret_cast<const Run*>(x + at.first), x1 = *reinterpret_cast<const Run*>(x + at.second),
                w = *reinterpret_cast<const Run*>(weight + at.first),
                v = *reinterpret_cast<const Run*>(weight + at.second);
      const float more = a.one_more ? 1.0F : 0.0F;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (of_weight) {
          weight_low[e][k] += low[e][k] * widen(x0.at[k]) * scale;
          weight_high[e][k] += high[e][k] * widen(x1.at[k]) * scale;
        }
        low[e][k] *= more + widen(w.at[k]);
        high[e][k] *= more + widen(v.at[k]);
        along += low[e][k] * widen(x0.at[k]) + high[e][k] * widen(x1.at[k]);
      }
    }
    const float pull =
        weight == nullptr ? 0.0F : lanes_sum(along, lanes) * scale * scale * scale / static_cast<float>(dim);
    T* const out = there ? static_cast<T*>(g.out[kind]) + row * g.out_stride[kind] + head * dim : nullptr;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int pair = (lane + e * lanes) * N;
      if (!there || pair >= pairs) continue;
      const HeadPairs at = head_pairs<N>(a, pair);
      Run below, above;
      if (weight != nullptr) {
        below = *reinterpret_cast<const Run*>(x + at.first);
        above = *reinterpret_cast<const Run*>(x + at.second);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        below.at[k] = rounded<T>(weight == nullptr ? low[e][k] : low[e][k] * scale - widen(below.at[k]) * pull);
        above.at[k] = rounded<T>(weight == nullptr ? high[e][k] : high[e][k] * scale - widen(above.at[k]) * pull);
      }
      *reinterpret_cast<Run*>(out + at.first) = below;
      *reinterpret_cast<Run*>(out + at.second) = above;
    }
  }
  if (!of_weight) return;
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int pair = (lane + e * lanes) * N;
    if (pair >= pairs) continue;
    const HeadPairs at = head_pairs<N>(a, pair);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums.of[group * dim + at.first + k] = weight_low[e][k];
      sums.of[group * dim + at.second + k] = weight_high[e][k];
    }
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= dim) return;
  float sum = 0.0F;
  for (int i = 0; i < groups; ++i) sum += sums.of[i * dim + column];
  g.partial[(static_cast<std::int64_t>(kind) * gridDim.x + blockIdx.x) * dim + column] = sum;
}

template <class T>
__global__ void __launch_bounds__(heads_width) unrolled_heads_weight_sum(UnrolledHeadsGradient g, std::int64_t chunks) {
  const int kind = static_cast<int>(blockIdx.x), column = static_cast<int>(threadIdx.x);
  if (g.grad_weight[kind] == nullptr || column >= g.of.head_dim) return;
  float sum = 0.0F;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    sum += g.partial[(kind * chunks + chunk) * g.of.head_dim + column];
  T& out = static_cast<T*>(g.grad_weight[kind])[column];
  out = rounded<T>(widen(out) + sum);
}

namespace detail {

// Whether the kernels know such heads, so many of which are asked for.
inline bool unrolled_heads_known(const UnrolledHeads& a, std::int64_t items) {
  return items < std::int64_t{1} << 31U && a.head_dim <= heads_width && a.head_dim % 2 == 0 &&
         2 * a.half <= a.head_dim && (a.cosine != nullptr || a.half == 0);
}

// use.operator()<T, N>(): pairs in runs of sixteen bytes where halves of a head and rows begin there.
template <class Use, class... P>
inline cudaError_t in_pairs(const UnrolledHeads& a, const std::int64_t (&strides)[3], const Use& use,
                            const P*... memory) {
  const auto of = [&]<class T>() {
    constexpr int n = sixteen_bytes<T>;
    bool whole = !a.interleaved && a.half % n == 0 && (a.head_dim / 2 - a.half) % n == 0 &&
                 in_sixteens<T>(n, memory...) && in_sixteens<T>(n, a.weight[0], a.weight[1]);
    for (int i = 0; i < 3; ++i)
      whole = whole && a.stride[i] % n == 0 && strides[i] % n == 0 && in_sixteens<T>(n, a.from[i]);
    return whole ? use.template operator()<T, n>() : use.template operator()<T, 1>();
  };
  return a.element == Element::float32 ? of.template operator()<float>() : of.template operator()<Bfloat16>();
}

// Of a head whose pairs are read in runs of n: a power of two.
inline int unrolled_heads_lanes(std::int64_t head_dim, int n) {
  int lanes = 1;
  while (lanes < 32 && lanes * n < head_dim / 2) lanes *= 2;
  return lanes;
}

}  // namespace detail

inline cudaError_t unrolled_heads(const UnrolledHeads& a, cudaStream_t stream) {
  const std::int64_t queries = a.rows * a.heads, others = a.keys * a.kv_heads,
                     items = queries > others ? queries : others;
  if (items == 0 || a.head_dim == 0) return cudaSuccess;
  if (!detail::unrolled_heads_known(a, items)) return cudaErrorInvalidValue;
  const auto kernel = [&]<class T, int N>() {
    const int lanes = detail::unrolled_heads_lanes(a.head_dim, N), groups = unrolled_heads_threads / lanes;
    return launch(unrolled_heads_kernel<T, N>, dim3(static_cast<unsigned>((items + groups - 1) / groups), 3),
                  dim3(unrolled_heads_threads), stream, a, lanes);
  };
  return detail::in_pairs(a, a.stride, kernel, a.to[0], a.to[1], a.to[2]);
}

inline cudaError_t unrolled_heads_gradient(const UnrolledHeadsGradient& g, cudaStream_t stream) {
  const UnrolledHeads& a = g.of;
  const std::int64_t most = a.heads > a.kv_heads ? a.heads : a.kv_heads, items = a.rows * most;
  if (items == 0 || a.head_dim == 0) return cudaSuccess;
  const bool of_weights = g.grad_weight[0] != nullptr || g.grad_weight[1] != nullptr;
  if (!detail::unrolled_heads_known(a, items) || (of_weights && g.partial == nullptr)) return cudaErrorInvalidValue;
  for (int i = 0; i < 2; ++i)
    if (g.grad_weight[i] != nullptr && a.weight[i] == nullptr) return cudaErrorInvalidValue;
  const auto kernels = [&]<class T, int N>() {
    const int lanes = detail::unrolled_heads_lanes(a.head_dim, N), groups = unrolled_heads_threads / lanes;
    const std::int64_t chunks = unrolled_heads_chunks(a.rows, a.heads);
    const cudaError_t error =
        launch(unrolled_heads_input_gradient<T, N>,
               dim3(static_cast<unsigned>(of_weights ? chunks : (items + groups - 1) / groups), 3),
               dim3(unrolled_heads_threads), stream, g, lanes);
    if (error != cudaSuccess || !of_weights) return error;
    return launch(unrolled_heads_weight_sum<T>, dim3(2), dim3(heads_width), stream, g, chunks);
  };
  return detail::in_pairs(a, g.out_stride, kernels, g.grad[0], g.grad[1], g.grad[2], g.out[0], g.out[1], g.out[2]);
}

}  // namespace rlalgo::cuda
