// y = x Wᵀ for bfloat16 weights with AMX; all else as with AVX-512, to the bit.
//
// A tile of W is 16 of its rows, as they lie, by 32 columns; a tile of x is 16 of its rows, rounded to bfloat16 and brought into
// pairs of columns, so that a sum is a block of yᵀ, which is transposed while it is stored. Two tiles of W meet two of x at a time. Rows of x are
// padded to a multiple of 16: sixteen cost what one does, and W comes from memory more slowly than that.
//
// y[i, n] is a chain over blocks of 32 columns (the last one padded with zeros), of each the sum of even and that of odd columns, whatever
// stands beside it in a tile. AMX takes what is too small for a normal number as 0.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <rlalgo/cpu/amx.hpp>
#include <rlalgo/cpu/detail/amx_bf16_attention.hpp>
#include <rlalgo/cpu/detail/avx512_bf16_kernels.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/detail/store_transposed.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/transpose.hpp>

namespace rlalgo::cpu::amx_bf16 {

#define RLALGO_AMX gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

inline constexpr std::int64_t tile_rows = 16, tile_columns = 32, tile = tile_rows * tile_columns;

struct alignas(64) Tile {
  std::array<std::uint16_t, tile> elements;  // bits of bfloat16
};
struct alignas(64) Sums {
  float at[4][16 * 16];  // yᵀ of tiles (W 0, x 0), (0, 1), (1, 0) and (1, 1)
};

// One or two tiles of rows of W, `steps` blocks of 32 columns; at each of them `lines` cache lines are fetched from `ahead` on.
struct Strip {
  const std::uint16_t *w0, *w1;
  std::int64_t row_bytes, steps;
  const char* ahead;
  std::int64_t lines;
};

// The sums of `Ws` tiles of rows of W and `Xs` of x.
template <int Ws, int Xs>
[[RLALGO_AMX]] void multiply(const Strip& w, const Tile* x0, const Tile* x1, Sums& sums) {
  _tile_zero(0);
  if constexpr (Xs == 2) _tile_zero(1);
  if constexpr (Ws == 2) _tile_zero(2);
  if constexpr (Ws == 2 && Xs == 2) _tile_zero(3);
  const char* ahead = w.ahead;
  for (std::int64_t s = 0; s < w.steps; ++s) {
    for (std::int64_t line = 0; line < w.lines; ++line, ahead += cache_line) prefetch<1>(ahead);
    _tile_loadd(4, w.w0 + s * tile_columns, w.row_bytes);
    _tile_loadd(6, x0 + s, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Xs == 2) {
      _tile_loadd(7, x1 + s, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (Ws == 2) {
      _tile_loadd(5, w.w1 + s * tile_columns, w.row_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (Xs == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums.at[0], 64);
  if constexpr (Xs == 2) _tile_stored(1, sums.at[1], 64);
  if constexpr (Ws == 2) _tile_stored(2, sums.at[2], 64);
  if constexpr (Ws == 2 && Xs == 2) _tile_stored(3, sums.at[3], 64);
}

// `count` (1 to 32) elements, the others 0.
[[RLALGO_AMX, gnu::always_inline]] inline __m512i load(const std::uint16_t* from, std::int64_t count) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((std::uint64_t{1} << count) - 1), from);
}

// Rows of x (at most 16, row stride ldx) in pairs of columns: element [k, i] of a tile is half k mod 2 of pair i of row k/2.
[[RLALGO_AMX]] inline void pair_columns(const std::uint16_t* x, std::int64_t ldx, std::int64_t rows, std::int64_t k,
                                        Tile* out) {
  for (std::int64_t j = 0; j < k; j += tile_columns, ++out) {
    const std::int64_t count = std::min(tile_columns, k - j);
    __m512 t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      t[i] = i < rows ? _mm512_castsi512_ps(load(x + i * ldx + j, count)) : _mm512_setzero_ps();
    avx512::transpose(t);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(reinterpret_cast<float*>(out->elements.data()) + 16 * i, t[i]);
  }
}

// What a thread has brought into pairs of columns last.
class Pairs {
 public:
  // Of each sixteen rows of x its tiles, one after the other.
  [[RLALGO_AMX]] const Tile* of(const LinearArgs& a) {
    if (a.x_version != 0 && a.x_version == version_ && a.x_bf16 == x_ && a.m == m_ && a.k == k_) return tiles_.data();
    const std::uint16_t* x = a.x_bf16;
    std::int64_t ldx = a.ldx;
    if (x == nullptr) {
      rounded_.resize(std::max(rounded_.size(), static_cast<std::size_t>(a.m * a.k)));
      for (std::int64_t i = 0; i < a.m; ++i) avx512_bf16::round(a.x + i * a.ldx, a.k, rounded_.data() + i * a.k);
      x = rounded_.data();
      ldx = a.k;
    }
    const std::int64_t steps = (a.k + tile_columns - 1) / tile_columns, blocks = (a.m + 15) / 16;
    tiles_.resize(std::max(tiles_.size(), static_cast<std::size_t>(blocks * steps)));
    for (std::int64_t b = 0; b < blocks; ++b)
      pair_columns(x + 16 * b * ldx, ldx, std::min<std::int64_t>(16, a.m - 16 * b), a.k, tiles_.data() + b * steps);
    version_ = a.x_version, x_ = a.x_bf16, m_ = a.m, k_ = a.k;
    return tiles_.data();
  }

 private:
  std::vector<std::uint16_t> rounded_;
  std::vector<Tile> tiles_;
  std::uint64_t version_ = 0;
  const std::uint16_t* x_ = nullptr;
  std::int64_t m_ = 0, k_ = 0;
};

class Product {
 public:
  explicit Product(const LinearArgs& a)
      : a_(a), steps_((a.k + tile_columns - 1) / tile_columns), blocks_((a.m + 15) / 16) {}

  [[RLALGO_AMX]] void run() {
    thread_local Pairs pairs;
    pairs_ = pairs.of(a_);
    amx::stored();
    const amx::Tiles tiles;
    for (std::int64_t n = a_.begin; n < a_.end; n += 32) strip(n);
  }

 private:
  // Rows [n, n + 32) of W, or what is left of them, against all of x.
  [[RLALGO_AMX]] void strip(std::int64_t n) {
    const std::int64_t columns = std::min<std::int64_t>(32, a_.end - n);
    const auto* const rows = static_cast<const std::uint16_t*>(a_.w) + n * a_.k;
    const bool whole = columns % 16 == 0 && a_.k % tile_columns == 0, two = columns > 16;
    const std::int64_t stride = whole ? a_.k : steps_ * tile_columns;
    const std::uint16_t* const w = whole ? rows : padded(rows, columns);
    const std::int64_t passes = (blocks_ + 1) / 2, lines = 32 / passes;
    Strip from{.w0 = w,
               .w1 = w + 16 * stride,
               .row_bytes = stride * static_cast<std::int64_t>(sizeof(std::uint16_t)),
               .steps = steps_,
               .ahead = reinterpret_cast<const char*>(rows + 32 * a_.k),
               .lines = lines};
    for (std::int64_t b = 0; b < blocks_; b += 2, from.ahead += steps_ * lines * cache_line) {
      const bool pair = b + 1 < blocks_;
      const Tile *const x0 = pairs_ + b * steps_, *const x1 = x0 + steps_;
      if (two)
        pair ? multiply<2, 2>(from, x0, x1, sums_) : multiply<2, 1>(from, x0, x1, sums_);
      else
        pair ? multiply<1, 2>(from, x0, x1, sums_) : multiply<1, 1>(from, x0, x1, sums_);
      for (int c = 0; c <= int{two}; ++c)
        for (int r = 0; r <= int{pair}; ++r)
          store_transposed(sums_.at[2 * c + r], std::min<std::int64_t>(16, a_.m - 16 * (b + r)),
                           std::min<std::int64_t>(16, columns - 16 * c),
                           a_.y + 16 * (b + r) * a_.ldy + n + 16 * c - a_.begin, a_.ldy);
    }
  }

  // `columns` rows of W in whole tiles, with zeros beside and below.
  [[RLALGO_AMX]] const std::uint16_t* padded(const std::uint16_t* rows, std::int64_t columns) const {
    thread_local std::vector<Tile> room;
    room.resize(std::max(room.size(), static_cast<std::size_t>(2 * steps_)));
    std::uint16_t* const out = room.front().elements.data();
    std::memset(out, 0, sizeof(Tile) * static_cast<std::size_t>(2 * steps_));
    for (std::int64_t i = 0; i < columns; ++i) std::copy_n(rows + i * a_.k, a_.k, out + i * steps_ * tile_columns);
    amx::stored();
    return out;
  }

  const LinearArgs& a_;
  std::int64_t steps_, blocks_;
  const Tile* pairs_ = nullptr;
  Sums sums_;
};

#undef RLALGO_AMX

inline void linear_bf16(const LinearArgs& a) { Product(a).run(); }

inline constexpr Kernels kernels = [] {
  Kernels all = avx512_bf16::kernels;
  all.name = "amx_bf16";
  all.linear_bf16 = linear_bf16;
  all.blocks_bf16 = nullptr;
  all.attention_bf16 = attention_bf16;
  all.rows_apart_f32 = avx512::kernels.rows_apart_f32;
  all.rows_apart_bf16 = 0;  // W takes longer to read than to multiply, whatever the rows
  return all;
}();

[[nodiscard]] inline bool supported() { return avx512_bf16::supported() && has_amx(); }

}  // namespace rlalgo::cpu::amx_bf16

#endif
