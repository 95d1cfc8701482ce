// The inner loops of decoding as a table of functions on raw pointers; each instruction set has one (detail/portable_kernels.hpp,
// avx2_kernels.hpp, avx512_kernels.hpp, avx512_bf16_kernels.hpp, amx_bf16_kernels.hpp), and best_kernels.hpp chooses.
//
// Every output number is computed from its own row by a fixed sequence of operations that depends on neither the number
// of rows, their order, nor the number of threads: batch 1 and batch n agree bit for bit.
//
// Shapes: x [m, k] with row stride ldx, W [n, k] row-major contiguous, y [m, n] with row stride ldy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlalgo::cpu {

// Positions per page of the KV cache; the attention kernels work on whole pages of keys.
inline constexpr std::int64_t page_positions = 32;
// Bytes of all positions of a dimension of keys in float32, or of a pair of dimensions in bfloat16.
inline constexpr std::int64_t key_row_bytes = 4 * page_positions;
// Widths that kernels may assume: head dimensions in the cache are padded to a multiple of `lane`, of bfloat16 of `pair_lane`.
inline constexpr std::int64_t lane = 8, pair_lane = 32;

struct LinearArgs {
  const float* x;  // [m, k], row stride ldx
  std::int64_t m, k, ldx;
  const void* w;            // [·, k] float or bfloat16, contiguous; or packed (packed_weights.hpp)
  std::int64_t begin, end;  // output columns = rows of W
  float* y;                 // column n of row i is y[i·ldy + n − begin]
  std::int64_t ldy;
  // [m, k], row stride ldx: x as Kernels::round rounds it, where the caller has that
  const std::uint16_t* x_bf16 = nullptr;
  // Of what x and x_bf16 hold, where somebody keeps count: what a thread has made of x serves until it changes. 0: nobody does.
  std::uint64_t x_version = 0;
};

// One query row against one kv head: `group` query heads share it.
//   score[t] = scale · q·k_t, capped, for first ≤ t < length;  out = Σ_t softmax(score)_t · v_t
struct AttentionArgs {
  const float* q;  // [group, d], d a multiple of `lane`, row stride ldq
  std::int64_t ldq, group, d;
  const std::byte* const* pages;  // [ceil(length / page_positions)]
  std::int64_t key_offset;        // in a page, bytes: keys of this layer and head, as kv_cache.hpp has them
  std::int64_t value_offset;      // in a page, bytes: values
  std::int64_t length;
  std::int64_t first;  // in the first page: positions before it are not seen
  float scale;
  float cap = 0.0F;              // a score s becomes cap·tanh(s / cap) before the softmax; 0 = it stays
  const float* sinks = nullptr;  // [group]: a score of each head that no key stands for; null = none
  float* scores;                 // scratch [group, ceil(length / page_positions) · page_positions]
  float* out;                    // [group, d], row stride ldo
  std::int64_t ldo;
  const std::byte* next = nullptr;        // keys of the page that the next call reads first, to be fetched meanwhile
  const std::uint16_t* q_bf16 = nullptr;  // attention_bf16: q as Kernels::round rounds it, which is all it reads of q
};

// Bends the products of one head where there is a cap. What is left to multiply them by.
[[nodiscard]] inline float bend_scores(const AttentionArgs& a, float* scores) {
  if (!(a.cap > 0.0F)) return a.scale;
  const float inner = a.scale / a.cap;
  for (std::int64_t t = a.first; t < a.length; ++t) scores[t] = a.cap * std::tanh(scores[t] * inner);
  return 1.0F;
}

// Bytes of the values of page p that are seen, in rows of one position or two.
[[nodiscard]] inline std::int64_t bytes_of_values(const AttentionArgs& a, std::int64_t p, std::int64_t element) {
  const std::int64_t count = std::min(page_positions, a.length - p * page_positions);
  return (count + count % 2) * a.d * element;
}

// Keys that are read after those of page p, by this call or the next one; where nobody knows, those themselves.
[[nodiscard]] inline const std::byte* keys_after(const AttentionArgs& a, std::int64_t p) {
  if ((p + 1) * page_positions < a.length) return a.pages[p + 1] + a.key_offset;
  return a.next != nullptr ? a.next : a.pages[p] + a.key_offset;
}

// Keys or values of a page of float32.
[[nodiscard]] inline const float* floats(const std::byte* page, std::int64_t offset) {
  return reinterpret_cast<const float*>(page + offset);
}

// gelu(x) by tanh = x·σ(x·(gelu_root + gelu_cube·x²)): √(8/π), and 0.044715 times that.
inline constexpr float gelu_root = 1.5957691216057308f, gelu_cube = gelu_root * 0.044715f;

struct MaxResult {
  float max;
  bool finite;  // every element is finite
};

// Rows of W in a block of packed weights (block_product.hpp), and blocks of so many rows.
inline constexpr std::int64_t rows_of_a_block = 16;
[[nodiscard]] constexpr std::int64_t blocks_of(std::int64_t rows) {
  return (rows + rows_of_a_block - 1) / rows_of_a_block;
}

// Of bfloat16 in blocks, in the order that `linear` reads; x is x_bf16, of which the element behind an odd k is read, too.
struct BlockKernels {
  void (*linear)(const LinearArgs&);
  std::int64_t (*block_bytes)(std::int64_t k);
  // Blocks [begin, end) of w [rows, k], row-major, into their places of `out`
  void (*pack)(const std::uint16_t* w, std::int64_t rows, std::int64_t k, std::int64_t begin, std::int64_t end,
               std::byte* out);
};

struct Kernels {
  std::string_view name;
  void (*linear_f32)(const LinearArgs&);
  // A CPU that multiplies bfloat16 may round x to it.
  void (*linear_bf16)(const LinearArgs&);
  // W as int8_matrix.hpp has it; x is quantized here (x_bf16 is not read).
  void (*linear_int8)(const LinearArgs&);
  void (*attention)(const AttentionArgs&);
  // out = x / sqrt(mean(x²) + eps) · weight over n elements
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, std::int64_t n);
  // gate = silu(gate) · up
  void (*silu_multiply)(float* gate, const float* up, std::int64_t n);
  // gate = gelu(gate) · up, gelu by tanh
  void (*gelu_tanh_multiply)(float* gate, const float* up, std::int64_t n);
  // x += y
  void (*add)(float* x, const float* y, std::int64_t n);
  // (x[i], y[i]) rotated by the angle whose cosine and sine are the i-th
  void (*rotate)(float* x, float* y, const float* cosines, const float* sines, std::int64_t n);
  MaxResult (*maximum)(const float* x, std::int64_t n);
  // Σ exp((x − shift)·scale); with `out` the terms are stored too. n ≤ 4096: the sum is in f32 lanes.
  float (*exp_sum)(const float* x, float shift, float scale, float* out, std::int64_t n);
  // The bits of n elements as bfloat16, to nearest even; null where linear_bf16 has no use for LinearArgs::x_bf16.
  void (*round)(const float* x, std::int64_t n, std::uint16_t* out) = nullptr;
  // Over pages of bfloat16: the weights of softmax are rounded to it, too; null where the CPU has no such products. With `round`.
  void (*attention_bf16)(const AttentionArgs&) = nullptr;
  // Null where W is read as well as it lies. With `round`.
  const BlockKernels* blocks_bf16 = nullptr;
  // From how many rows on a thread multiplies all of W for longer than it reads it, so that rows can be divided instead of columns; 0: never.
  std::int64_t rows_apart_f32 = 24, rows_apart_bf16 = 24, rows_apart_int8 = 24;
};

}  // namespace rlalgo::cpu
