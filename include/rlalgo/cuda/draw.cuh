// What is asked of rows of logits (kernels.hpp): a block for each ask.
//
// What is kept of a row is found by its bits: the k-th largest logit by a histogram of each byte of it, then all that are as
// large, sorted by falling logit. Sums whose order matters are one thread's.
//
// Random numbers are those of core/philox.hpp, the arithmetic that of inference/sampling.hpp with the portable kernels: every
// product and sum of floats is rounded by itself, what is summed is summed in the same order, masses in double.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/philox.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int draw_threads = 512, draw_block = 512, draw_lanes = 8;  // block: ids of a partial sum

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
  std::int64_t chosen;
  unsigned count, digit, rank, kept;  // kept: ~0U, not known
  unsigned bins[256];
  float terms[draw_block];
  union {
    float sums[draw_vocabulary / draw_block];
    double weights[draw_kept];
  };
  std::uint64_t keys[draw_kept];
};

__device__ inline float scaled_logit(float logit, float top, float scale) {
  return __fmul_rn(__fsub_rn(logit, top), scale);
}
__device__ inline double draw_weight(float logit, float top, float scale) {
  return exp(static_cast<double>(scaled_logit(logit, top, scale)));
}

// Rises with the number; both zeros are one.
__device__ inline std::uint32_t ordered_bits(float x) {
  const std::uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0F));
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float from_ordered_bits(std::uint32_t bits) {
  return __uint_as_float((bits & 0x80000000U) != 0 ? bits & 0x7FFFFFFFU : ~bits);
}
// Falling logits, then rising ids; and back.
__device__ inline std::uint64_t by_logit(float logit, std::int64_t id) {
  return static_cast<std::uint64_t>(~ordered_bits(logit)) << 32U | static_cast<std::uint32_t>(id);
}
__device__ inline float logit_of(std::uint64_t key) {
  return from_ordered_bits(~static_cast<std::uint32_t>(key >> 32U));
}
__device__ inline std::uint64_t exchanged(std::uint64_t key) { return key << 32U | key >> 32U; }

template <int Threads>
__device__ inline Largest largest_of(DrawShared& shared, const float* logits, std::int64_t vocabulary) {
  const int thread = static_cast<int>(threadIdx.x);
  Largest largest{-INFINITY, 0x7FFFFFFF, 1};
  for (std::int64_t j = thread; j < vocabulary; j += Threads)
    largest = larger(largest, {logits[j], static_cast<std::int32_t>(j), fabsf(logits[j]) < INFINITY ? 1 : 0});
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2)
    largest = larger(largest,
                     {__shfl_xor_sync(whole_warp, largest.logit, bits), __shfl_xor_sync(whole_warp, largest.id, bits),
                      __shfl_xor_sync(whole_warp, largest.finite, bits)});
  __syncthreads();  // of an earlier call
  if (thread % 32 == 0) shared.of_warp[thread / 32] = largest;
  __syncthreads();
  largest = shared.of_warp[0];
  for (int w = 1; w < Threads / 32; ++w) largest = larger(largest, shared.of_warp[w]);
  return largest;
}

// Σ exp((l − top)·scale); the partial sums stay in shared.sums.
template <int Threads>
__device__ inline double mass_of(DrawShared& shared, const float* logits, std::int64_t vocabulary, float top,
                                 float scale) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // what was in the place of the sums
  // Eight threads take a partial sum each, every eighth id.
  const std::int64_t blocks = (vocabulary + draw_block - 1) / draw_block;
  for (std::int64_t first = 0; first < blocks; first += Threads / draw_lanes) {
    const std::int64_t block = first + thread / draw_lanes, begin = block * draw_block;
    const std::int64_t end = begin + draw_block < vocabulary ? begin + draw_block : vocabulary;
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
    shared.total = total;
  }
  __syncthreads();
  return shared.total;
}

// Of all ids.
template <int Threads>
__device__ inline std::int64_t draw_from_all(DrawShared& shared, const float* logits, std::int64_t vocabulary,
                                             const Largest& largest, float scale, double uniform) {
  const int thread = static_cast<int>(threadIdx.x);
  const float top = largest.logit;
  (void)mass_of<Threads>(shared, logits, vocabulary, top, scale);
  if (thread == 0) {
    const std::int64_t blocks = (vocabulary + draw_block - 1) / draw_block;
    const double target = uniform * shared.total;
    double before = 0.0;
    std::int64_t b = 0;
    while (b + 1 < blocks && before + static_cast<double>(shared.sums[b]) <= target)
      before += static_cast<double>(shared.sums[b++]);
    shared.block = b;
    shared.before = before;
    shared.target = target;
  }
  __syncthreads();
  const std::int64_t begin = shared.block * draw_block;
  const int count = static_cast<int>(vocabulary - begin < draw_block ? vocabulary - begin : draw_block);
  if (thread < count) shared.terms[thread] = portable_exp(scaled_logit(logits[begin + thread], top, scale));
  __syncthreads();
  if (thread == 0) {
    std::int64_t chosen = -1;
    double before = shared.before;
    for (int j = 0; j < count; ++j) {
      if (shared.terms[j] <= 0.0F) continue;
      chosen = begin + j;
      before += static_cast<double>(shared.terms[j]);
      if (before > shared.target) break;
    }
    // Rounding can leave the target at or behind the end of a block without a possible id: then the one before.
    for (std::int64_t j = begin; chosen < 0 && j-- > 0;)
      if (draw_weight(logits[j], top, scale) > 0.0) chosen = j;
    shared.chosen = chosen < 0 ? largest.id : chosen;
  }
  __syncthreads();
  return shared.chosen;
}

// The bits of the k-th largest logit.
template <int Threads>
__device__ inline std::uint32_t kth_largest(DrawShared& shared, const float* logits, std::int64_t vocabulary,
                                            std::int64_t k) {
  const int thread = static_cast<int>(threadIdx.x);
  std::uint32_t known = 0, mask = 0;
  unsigned left = static_cast<unsigned>(k);
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int b = thread; b < 256; b += Threads) shared.bins[b] = 0;
    __syncthreads();
    for (std::int64_t j = thread; j < vocabulary; j += Threads) {
      const std::uint32_t bits = ordered_bits(logits[j]);
      if ((bits & mask) == known) atomicAdd(&shared.bins[bits >> shift & 255U], 1U);
    }
    __syncthreads();
    if (thread == 0) {
      unsigned digit = 255, rest = left;
      while (digit > 0 && shared.bins[digit] < rest) rest -= shared.bins[digit--];
      shared.digit = digit;
      shared.rank = rest;
    }
    __syncthreads();
    known |= shared.digit << shift;
    mask |= 255U << shift;
    left = shared.rank;
  }
  return known;
}

// The ids that `keeps` keeps, in shared.keys where the block has room for them; how many there are.
template <int Threads, class Keeps>
__device__ inline unsigned gather_kept(DrawShared& shared, const float* logits, std::int64_t vocabulary,
                                       const Keeps& keeps) {
  __syncthreads();
  if (threadIdx.x == 0) shared.count = 0;
  __syncthreads();
  for (std::int64_t j = threadIdx.x; j < vocabulary; j += Threads) {
    if (!keeps(logits[j])) continue;
    const unsigned at = atomicAdd(&shared.count, 1U);
    if (at < draw_kept) shared.keys[at] = by_logit(logits[j], j);
  }
  __syncthreads();
  return shared.count;
}

// The first `count` keys, rising. Batcher's bitonic order.
template <int Threads>
__device__ inline void sort_keys(DrawShared& shared, unsigned count) {
  unsigned places = 1;
  while (places < count) places *= 2;
  for (unsigned i = count + threadIdx.x; i < places; i += Threads) shared.keys[i] = ~std::uint64_t{0};
  for (unsigned size = 2; size <= places; size *= 2)
    for (unsigned apart = size / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (unsigned i = threadIdx.x; i < places; i += Threads) {
        const unsigned other = i ^ apart;
        if (other <= i) continue;
        const std::uint64_t a = shared.keys[i], b = shared.keys[other];
        if ((a > b) == ((i & size) == 0)) shared.keys[i] = b, shared.keys[other] = a;
      }
    }
  __syncthreads();
}

template <int Threads>
__device__ inline void weigh_keys(DrawShared& shared, unsigned count, bool by_id, float top, float scale) {
  for (unsigned i = threadIdx.x; i < count; i += Threads)
    shared.weights[i] = draw_weight(logit_of(by_id ? exchanged(shared.keys[i]) : shared.keys[i]), top, scale);
  __syncthreads();
}

// Of the ids that top_k, top_p and min_p keep; −1 where a block does not hold them. They stay in shared.keys, by id; shared.total is
// their mass.
template <int Threads>
__device__ inline std::int64_t draw_from_kept(DrawShared& shared, const float* logits, std::int64_t vocabulary,
                                              float top, float scale, const DrawAsk& ask, double uniform) {
  const bool top_k = ask.top_k > 0 && ask.top_k < vocabulary, top_p = ask.top_p < 1.0;
  const double all = top_p && !top_k ? mass_of<Threads>(shared, logits, vocabulary, top, scale) : 0.0;
  unsigned count = 0;
  if (top_k || (top_p && vocabulary > draw_kept)) {
    if (ask.top_k > draw_kept) return -1;
    const std::uint32_t least = kth_largest<Threads>(shared, logits, vocabulary, top_k ? ask.top_k : draw_kept);
    count = gather_kept<Threads>(shared, logits, vocabulary, [&](float l) { return ordered_bits(l) >= least; });
    if (!top_k && count > draw_kept)  // those as large as the last: without them
      count = gather_kept<Threads>(shared, logits, vocabulary, [&](float l) { return ordered_bits(l) > least; });
  } else if (top_p) {
    count = gather_kept<Threads>(shared, logits, vocabulary, [](float) { return true; });
  } else {
    const float least =
        __fsub_rn(__fadd_rn(top, static_cast<float>(log(ask.min_p) / static_cast<double>(scale))), 1e-3F / scale);
    count = gather_kept<Threads>(shared, logits, vocabulary, [&](float l) { return l >= least; });
  }
  if (count > draw_kept) return -1;
  sort_keys<Threads>(shared, count);
  weigh_keys<Threads>(shared, count, false, top, scale);
  if (threadIdx.x == 0) {
    unsigned kept = count;
    if (top_p) {
      double total = all;
      if (top_k) {
        total = 0.0;
        for (unsigned i = 0; i < count; ++i) total += shared.weights[i];
      }
      double before = 0.0;
      kept = 0;
      while (kept < count && (kept == 0 || before < ask.top_p * total)) before += shared.weights[kept++];
      if (!top_k && before < ask.top_p * total && count < vocabulary) kept = ~0U;
    }
    if (ask.min_p > 0.0 && kept != ~0U)
      while (kept > 1 && shared.weights[kept - 1] < ask.min_p) --kept;
    shared.kept = kept;
  }
  __syncthreads();
  const unsigned kept = shared.kept;
  if (kept == ~0U) return -1;
  for (unsigned i = threadIdx.x; i < kept; i += Threads) shared.keys[i] = exchanged(shared.keys[i]);
  sort_keys<Threads>(shared, kept);
  weigh_keys<Threads>(shared, kept, true, top, scale);
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (unsigned i = 0; i < kept; ++i) total += shared.weights[i];
    const double target = uniform * total;
    double before = 0.0;
    std::int64_t chosen = -1;
    for (unsigned i = 0; i < kept; ++i) {
      if (shared.weights[i] <= 0.0) continue;
      chosen = static_cast<std::int64_t>(shared.keys[i] >> 32U);
      before += shared.weights[i];
      if (before > target) break;
    }
    shared.chosen = chosen;
    shared.total = total;
  }
  __syncthreads();
  return shared.chosen;
}

// The most likely ids of a row, or of the `kept` ones in shared.keys; how many, or −1 where a block does not hold them.
template <int Threads>
__device__ inline int most_likely(DrawShared& shared, const float* logits, std::int64_t vocabulary, unsigned kept,
                                  std::int64_t wanted, float top, float scale, double total, DrawLikely* out) {
  unsigned count = kept;
  if (kept > 0) {
    for (unsigned i = threadIdx.x; i < kept; i += Threads) shared.keys[i] = exchanged(shared.keys[i]);
  } else {
    if (wanted > vocabulary) wanted = vocabulary;
    if (wanted > draw_kept) return -1;
    const std::uint32_t least = kth_largest<Threads>(shared, logits, vocabulary, wanted);
    count = gather_kept<Threads>(shared, logits, vocabulary, [&](float l) { return ordered_bits(l) >= least; });
    if (count > draw_kept) return -1;
  }
  sort_keys<Threads>(shared, count);
  if (threadIdx.x == 0) {
    unsigned written = 0;
    for (unsigned i = 0; i < count && written < wanted; ++i) {
      const float logit = logit_of(shared.keys[i]);
      if (!(draw_weight(logit, top, scale) > 0.0)) continue;
      out[written++] = {static_cast<std::int32_t>(static_cast<std::uint32_t>(shared.keys[i])),
                        static_cast<float>(static_cast<double>(scaled_logit(logit, top, scale)) - log(total))};
    }
    shared.count = written;
  }
  __syncthreads();
  return static_cast<int>(shared.count);
}

template <int Threads>
__global__ void __launch_bounds__(Threads) draw_kernel(Draw a) {
  RLALGO_CUDA_SHARED(DrawShared, shared);
  const int thread = static_cast<int>(threadIdx.x);
  const DrawAsk ask = a.asks[blockIdx.x];
  const float* const original = a.logits + ask.row * a.stride;
  const float* logits = original;
  DrawAnswer& answer = a.answers[blockIdx.x];
  if (ask.edited >= 0) {
    float* const copy = a.edited + ask.edited * a.vocabulary;
    for (std::int64_t j = thread; j < a.vocabulary; j += Threads) copy[j] = original[j];
    __syncthreads();
    for (int i = thread; i < ask.seen; i += Threads) {
      float& l = copy[a.ids[ask.first_seen + i]];
      l = l > 0.0F ? l / ask.penalty : __fmul_rn(l, ask.penalty);
    }
    __syncthreads();
    for (int i = thread; i < ask.forbidden; i += Threads) copy[a.ids[ask.first_forbidden + i]] = draw_forbidden;
    __syncthreads();
    logits = copy;
  }
  Largest largest = largest_of<Threads>(shared, logits, a.vocabulary);
  if (largest.finite == 0) {
    if (thread == 0) answer = {draw_not_finite, 0.0F, 0, 0};
    return;
  }
  const bool drawn = ask.given < 0, greedy = !(ask.scale > 0.0F) || !(ask.scale < INFINITY);
  const bool whole = (ask.top_k <= 0 || ask.top_k >= a.vocabulary) && ask.top_p >= 1.0 && ask.min_p <= 0.0;
  float scale = greedy ? 1.0F : ask.scale;
  std::int64_t chosen = drawn ? largest.id : ask.given;
  double total = 0.0;
  unsigned kept = 0;  // ids in shared.keys
  if (!drawn || greedy) {
    total = mass_of<Threads>(shared, logits, a.vocabulary, largest.logit, scale);
  } else {
    const double uniform = philox_uniform(ask.seed, sampling_stream, ask.step, ask.index << 32U | ask.position);
    chosen = whole ? draw_from_all<Threads>(shared, logits, a.vocabulary, largest, scale, uniform)
                   : draw_from_kept<Threads>(shared, logits, a.vocabulary, largest.logit, scale, ask, uniform);
    total = shared.total;
    kept = whole || chosen < 0 ? 0 : shared.kept;
  }
  if (chosen < 0) {
    if (thread == 0) answer = {draw_not_known, 0.0F, 0, 0};
    return;
  }
  if (drawn && ask.of_model != 0) {
    logits = original;
    largest = largest_of<Threads>(shared, logits, a.vocabulary);
    scale = 1.0F;
    total = mass_of<Threads>(shared, logits, a.vocabulary, largest.logit, scale);
    kept = 0;
  }
  const float own = logits[chosen];
  if (!drawn) {
    __syncthreads();
    if (thread == 0) shared.count = 0;
    __syncthreads();
    unsigned above = 0;
    for (std::int64_t j = thread; j < a.vocabulary; j += Threads) above += logits[j] > own ? 1U : 0U;
    if (above > 0) atomicAdd(&shared.count, above);
    __syncthreads();
  }
  const int rank = drawn ? 0 : static_cast<int>(shared.count) + 1;
  __syncthreads();
  int likely = 0;
  if (ask.likely > 0)
    likely = most_likely<Threads>(shared, logits, a.vocabulary, kept, ask.likely, largest.logit, scale, total,
                                  a.likely + static_cast<std::int64_t>(blockIdx.x) * a.likely_each);
  if (thread != 0) return;
  if (likely < 0)
    answer = {draw_not_known, 0.0F, 0, 0};
  else
    answer = {static_cast<std::int32_t>(chosen),
              static_cast<float>(static_cast<double>(scaled_logit(own, largest.logit, scale)) - log(total)), rank,
              likely};
}

inline cudaError_t draw(const Draw& a, cudaStream_t stream) {
  if (a.count == 0) return cudaSuccess;
  if (a.vocabulary <= 0 || a.vocabulary > draw_vocabulary) return cudaErrorInvalidValue;
  return launch(draw_kernel<draw_threads>, dim3(static_cast<unsigned>(a.count)), dim3(draw_threads), stream, a);
}

}  // namespace rlalgo::cuda
