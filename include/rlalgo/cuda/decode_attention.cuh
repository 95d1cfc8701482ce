// Attention of one query per row over a paged cache (kernels.hpp), all query heads of a key head at once.
//
// A block is a chunk of 256 positions of one row and key head; each of its 4 warps takes 64. Chunks are those of the
// sequence, so a row's numbers depend on nothing but itself; the last block of a row's to end, or a second kernel, merges them in
// their order.
// Tensor cores multiply 16 rows: query heads of a key head, padded with zeros; a larger group is several blocks. The order of
// what is summed over is free: each thread reads 16 bytes side by side of a key or a value, and queries and outputs follow that
// order. Scores and sums are in float32, probabilities are rounded to bfloat16 before the product with the values, and so is
// their sum, so that they add up to one.
//
// What a row does not see is never computed with: memory that nobody wrote may hold anything. Pages in float8 are made bfloat16 as
// they are read, which is exact.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/float8.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int decode_warps = 4, decode_heads = 16;

struct alignas(16) EightElements {
  std::uint32_t pair[4];  // bfloat16
};

__device__ inline float lower_half(std::uint32_t pair) { return __uint_as_float(pair << 16U); }
__device__ inline float upper_half(std::uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }
__device__ inline std::uint32_t pair_of(float low, float high) {
  return rounded<Bfloat16>(low).bits | static_cast<std::uint32_t>(rounded<Bfloat16>(high).bits) << 16U;
}
// Eight neighbours of a page.
__device__ inline EightElements eight_of(const Bfloat16* page) { return *reinterpret_cast<const EightElements*>(page); }
__device__ inline EightElements eight_of(const Float8* page) {
  const auto codes = *reinterpret_cast<const Neighbours<std::uint32_t, 2>*>(page);
  EightElements out;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t two = codes.at[i / 2] >> 16U * (i % 2);
    const auto number = [](std::uint32_t code) { return widen(Float8{static_cast<std::uint8_t>(code)}); };
    out.pair[i] =
        __float_as_uint(number(two & 0xFFU)) >> 16U | (__float_as_uint(number(two >> 8U & 0xFFU)) & 0xFFFF0000U);
  }
  return out;
}
// Of two pairs: their lower halves, or their upper ones.
__device__ inline std::uint32_t lower_halves(std::uint32_t a, std::uint32_t b) { return (a & 0xFFFFU) | b << 16U; }
__device__ inline std::uint32_t upper_halves(std::uint32_t a, std::uint32_t b) { return a >> 16U | (b & 0xFFFF0000U); }

template <int D>
struct DecodeShared {
  std::uint32_t query[decode_heads]
                     [D / 2 + 4];  // in pairs; rows apart, so that the lanes of a warp read different banks
  float sums[decode_heads][D + 1];
  float tops[decode_warps][decode_heads], totals[decode_warps][decode_heads];
  bool last;
};

// The positions that a row sees: [first, end).
struct Seen {
  std::int64_t first, end;
};
__device__ inline Seen seen_by(const DecodeAttention& a, std::int64_t row) {
  const std::int64_t end = a.positions[row] + 1;
  return {a.window > 0 && end > a.window ? end - a.window : 0, end};
}

template <int D>
__device__ inline float* decode_partial(const DecodeAttention& a, std::int64_t row, int head, int chunk) {
  return a.partial +
         ((row * a.heads + head) * ((a.max_pages * page_length + decode_chunk - 1) / decode_chunk) + chunk) * (D + 2);
}

// Element d of a row and head, of its chunks in their order.
template <int D>
__device__ inline void merge_chunks(const DecodeAttention& a, std::int64_t row, int head, int d) {
  const Seen seen = seen_by(a, row);
  const int first = static_cast<int>(seen.first / decode_chunk),
            end = static_cast<int>((seen.end + decode_chunk - 1) / decode_chunk);
  float most = -INFINITY, sum = 0.0F, total = 0.0F;
  for (int c = first; c < end; ++c) most = fmaxf(most, decode_partial<D>(a, row, head, c)[D]);
  for (int c = first; c < end; ++c) {
    const float* const from = decode_partial<D>(a, row, head, c);
    const float share = expf(from[D] - most);
    sum += share * from[d];
    total += share * from[D + 1];
  }
  a.out[(row * a.heads + head) * a.head_dim + d] = rounded<Bfloat16>(first < end ? sum / total : 0.0F).bits;
  if (a.log_sum != nullptr && d == 0) a.log_sum[row * a.heads + head] = first < end ? most + logf(total) : -INFINITY;
}

// Stored: of the pages.
template <int D, class Stored>
__global__ void __launch_bounds__(32 * decode_warps) decode_attention_chunks(DecodeAttention a) {
  constexpr int steps = D / 16, own = D / 4, columns = D / 8;  // own: elements of a key that a thread reads
  RLALGO_CUDA_SHARED(DecodeShared<D>, shared);
  const int group = a.heads / a.kv_heads, parts = (group + decode_heads - 1) / decode_heads;
  const int kv = static_cast<int>(blockIdx.y) / parts, part = static_cast<int>(blockIdx.y) % parts;
  const int first_head = kv * group + part * decode_heads;
  const int heads = group - part * decode_heads < decode_heads ? group - part * decode_heads : decode_heads;
  const std::int64_t row = blockIdx.z, chunk_begin = static_cast<std::int64_t>(blockIdx.x) * decode_chunk;
  const Seen seen = seen_by(a, row);
  if (a.arrived != nullptr && seen.end <= 0) {  // the row sees nothing: its first block says so
    for (int i = static_cast<int>(threadIdx.x); blockIdx.x == 0 && i < heads * a.head_dim; i += 32 * decode_warps)
      merge_chunks<D>(a, row, first_head + i / a.head_dim, i % a.head_dim);
    return;
  }
  if (chunk_begin >= seen.end || chunk_begin + decode_chunk <= seen.first) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4,
            t = lane % 4;

  const std::uint16_t* const query = a.q + (row * a.heads + first_head) * a.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < decode_heads * (D / 2); i += 32 * decode_warps) {
    const int head = i / (D / 2), d = i % (D / 2) * 2;
    shared.query[head][d / 2] =
        head < heads && d < a.head_dim
            ? *reinterpret_cast<const std::uint32_t*>(query + static_cast<std::int64_t>(head) * a.head_dim + d)
            : 0U;
  }
  __syncthreads();
  // Of step s, thread t multiplies elements t·own + 4 s … + 3 of the head: the first two and the last two are the halves that
  // the product has 8 columns apart.
  const auto fragment = [&](int s, std::uint32_t(&out)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = shared.query[g + i % 2 * 8][(t * own + 4 * s) / 2 + i / 2];
  };
  constexpr bool keeps_query = D <= 128;  // in registers
  std::uint32_t kept[keeps_query ? steps : 1][4];
  if constexpr (keeps_query)
#pragma unroll
    for (int s = 0; s < steps; ++s) fragment(s, kept[s]);

  float o[columns][4] = {}, top[2] = {-INFINITY, -INFINITY}, total[2] = {0.0F, 0.0F};
  const std::int64_t* const table = a.table + row * a.max_pages;
  const std::int64_t begin = chunk_begin + warp * (decode_chunk / decode_warps),
                     end = begin + decode_chunk / decode_warps;
  const std::int64_t start = seen.first > begin ? seen.first / 16 * 16 : begin;
  for (std::int64_t tile = start; tile < end && tile < seen.end; tile += 16) {
    const Stored* const page = static_cast<const Stored*>(a.arena) + table[tile / page_length] * a.pages.page_stride +
                               kv * a.pages.head_stride;
    const int inside = static_cast<int>(tile % page_length);
    float scores[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Stored* const key = page + a.pages.key_offset + (inside + 8 * n + g) * a.pages.position_stride;
#pragma unroll
      for (int i = 0; i < own / 8; ++i) {
        EightElements eight = {};
        if (t * own + 8 * i < a.head_dim) eight = eight_of(key + t * own + 8 * i);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if constexpr (keeps_query) {
            product_16x8x16(scores[n], kept[2 * i + half], eight.pair[2 * half], eight.pair[2 * half + 1]);
          } else {
            std::uint32_t q[4];
            fragment(2 * i + half, q);
            product_16x8x16(scores[n], q, eight.pair[2 * half], eight.pair[2 * half + 1]);
          }
        }
      }
    }
    // Rows g and g + 8 of the scores; positions 2 t and 2 t + 1 of each half.
    float peak[2] = {top[0], top[1]};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t position = tile + 8 * n + 2 * t + i % 2;
        float score = scores[n][i] * a.scale;
        if (a.softcap > 0.0F) score = a.softcap * tanhf(score / a.softcap);
        scores[n][i] = position >= seen.first && position < seen.end ? score : -INFINITY;
        peak[i / 2] = fmaxf(peak[i / 2], scores[n][i]);
      }
    std::uint32_t p[4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      peak[r] = fmaxf(peak[r], __shfl_xor_sync(whole_warp, peak[r], 1));
      peak[r] = fmaxf(peak[r], __shfl_xor_sync(whole_warp, peak[r], 2));
      const float factor = top[r] == -INFINITY ? 0.0F : expf(top[r] - peak[r]);
      total[r] *= factor;
#pragma unroll
      for (int j = 0; j < columns; ++j) o[j][2 * r] *= factor, o[j][2 * r + 1] *= factor;
      top[r] = peak[r];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        p[2 * n + r] = pair_of(expf(scores[n][2 * r] - top[r]), expf(scores[n][2 * r + 1] - top[r]));
        total[r] += lower_half(p[2 * n + r]) + upper_half(p[2 * n + r]);
      }
    }
    // Column 8 j + g of the product is element g·columns + j of the head.
    const Stored* const values = page + a.pages.value_offset + inside * a.pages.position_stride;
#pragma unroll
    for (int j = 0; j < columns; j += 8) {
      EightElements v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int place = 2 * t + k % 2 + k / 2 * 8;
        v[k] = EightElements{};
        if (tile + place >= seen.first && tile + place < seen.end && g * columns + j < a.head_dim)
          v[k] = eight_of(values + place * a.pages.position_stride + g * columns + j);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        product_16x8x16(o[j + 2 * i], p, lower_halves(v[0].pair[i], v[1].pair[i]),
                        lower_halves(v[2].pair[i], v[3].pair[i]));
        product_16x8x16(o[j + 2 * i + 1], p, upper_halves(v[0].pair[i], v[1].pair[i]),
                        upper_halves(v[2].pair[i], v[3].pair[i]));
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(whole_warp, total[r], 1);
    total[r] += __shfl_xor_sync(whole_warp, total[r], 2);
    if (t == 0) {
      shared.tops[warp][g + 8 * r] = top[r];
      shared.totals[warp][g + 8 * r] = total[r];
    }
  }
  __syncthreads();
  // The warps' sums, in their order.
  float share[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = -INFINITY;
#pragma unroll
    for (int w = 0; w < decode_warps; ++w) most = fmaxf(most, shared.tops[w][g + 8 * r]);
    share[r] = top[r] == -INFINITY ? 0.0F : expf(top[r] - most);
  }
  for (int w = 0; w < decode_warps; ++w) {
    if (warp == w)
#pragma unroll
      for (int j = 0; j < columns; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& sum = shared.sums[g + i / 2 * 8][(2 * t + i % 2) * columns + j];
          sum = (w == 0 ? 0.0F : sum) + share[i / 2] * o[j][i];
        }
    __syncthreads();
  }
  for (int head = warp; head < heads; head += decode_warps) {
    float* const to = decode_partial<D>(a, row, first_head + head, static_cast<int>(blockIdx.x));
    for (int d = lane; d < D; d += 32) to[d] = shared.sums[head][d];
    if (lane != 0) continue;
    float most = -INFINITY, all = 0.0F;
    for (int w = 0; w < decode_warps; ++w) most = fmaxf(most, shared.tops[w][head]);
    for (int w = 0; w < decode_warps; ++w)
      if (shared.tops[w][head] != -INFINITY) all += shared.totals[w][head] * expf(shared.tops[w][head] - most);
    to[D] = most;
    to[D + 1] = all;
  }
  if (a.arrived == nullptr) return;
  // What this block has written is there for a block that sees its count; the last one sees all.
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto chunks =
        static_cast<std::uint32_t>((seen.end + decode_chunk - 1) / decode_chunk - seen.first / decode_chunk);
    std::uint32_t* const count = a.arrived + row * a.heads + first_head;
    __threadfence();
    shared.last = atomicAdd(count, 1U) + 1 == chunks;
    __threadfence();
    if (shared.last) *count = 0;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); shared.last && i < heads * a.head_dim; i += 32 * decode_warps)
    merge_chunks<D>(a, row, first_head + i / a.head_dim, i % a.head_dim);
}

// Merges the chunks of a row and head.
template <int D>
__global__ void __launch_bounds__(D) decode_attention_merge(DecodeAttention a) {
  if (static_cast<int>(threadIdx.x) < a.head_dim)
    merge_chunks<D>(a, blockIdx.y, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x));
}

namespace detail {

template <int D>
inline cudaError_t decode_attention_of(const DecodeAttention& a, cudaStream_t stream) {
  const int group = a.heads / a.kv_heads, parts = (group + decode_heads - 1) / decode_heads;
  const dim3 blocks(static_cast<unsigned>(decode_chunks(a.max_pages)), static_cast<unsigned>(a.kv_heads * parts),
                    static_cast<unsigned>(a.rows));
  if (a.max_pages > 0)
    if (const cudaError_t error =
            launch(a.pages.float8 ? decode_attention_chunks<D, Float8> : decode_attention_chunks<D, Bfloat16>, blocks,
                   dim3(32 * decode_warps), stream, a);
        error != cudaSuccess)
      return error;
  if (a.arrived != nullptr && a.max_pages > 0) return cudaSuccess;
  return launch(decode_attention_merge<D>, dim3(static_cast<unsigned>(a.heads), static_cast<unsigned>(a.rows)), dim3(D),
                stream, a);
}

}  // namespace detail

inline cudaError_t decode_attention(const DecodeAttention& a, cudaStream_t stream) {
  if (a.rows == 0 || a.heads == 0) return cudaSuccess;
  const auto eight = [](std::int64_t stride) { return stride % 8 == 0; };
  const Pages& p = a.pages;
  if (a.kv_heads <= 0 || a.heads % a.kv_heads != 0 || a.head_dim <= 0 || !eight(a.head_dim) || a.head_dim > 256 ||
      !eight(p.page_stride) || !eight(p.key_offset) || !eight(p.value_offset) || !eight(p.position_stride) ||
      !eight(p.head_stride) || reinterpret_cast<std::uintptr_t>(a.arena) % (p.float8 ? 8 : 16) != 0 ||
      reinterpret_cast<std::uintptr_t>(a.q) % 4 != 0)
    return cudaErrorInvalidValue;
  switch (decode_width(a.head_dim)) {
    case 64:
      return detail::decode_attention_of<64>(a, stream);
    case 128:
      return detail::decode_attention_of<128>(a, stream);
    case 192:
      return detail::decode_attention_of<192>(a, stream);
    default:
      return detail::decode_attention_of<256>(a, stream);
  }
}

}  // namespace rlalgo::cuda
