// y = x Wᵀ for few rows of x, by strips of W: a strip stays in L1 while the rows of x pass by, so that the weights are read
// once, as they lie in memory. k is cut into blocks so that a strip and the rows of x fit; where L1 has room, a strip is several tiles wide,
// which all meet a tile of x before the next one comes. The sum of one output depends on k only: blocks in order, each as the tile sums it.
//
// What comes `prefetch_distance` or a strip later is fetched into L2 meanwhile, in the order of memory and as evenly as the tiles
// compute: a few lines at each step of their inner loops. (A burst of prefetches fills the few buffers for misses, and
// what is computed behind it waits: 16 rows of x then cost the time of reading W and that of multiplying, one after the other.)
//
// A tile is what one instruction set multiplies at a time:
//   Tile::X, Tile::W       elements of x and W
//   Tile::columns_of_k     blocks of k are multiples of it
//   Tile::largest_block    of k
//   Tile::rows             of x in a tile, at most
//   Tile::multiply<Columns, Rows, Lines>(x, ldx, w, ldw, k, y, ldy, add, ahead)
//                          y[i, n] (+)= Σ_j x[i, j] w[n, j]: `Rows` (2 or more; also 1 where Tile::rows is 2) rows of x, `Columns` (1 or 4) rows of W; at
//                          each step of columns_of_k it prefetches `Lines` (0, 1, 2 or 4) cache lines, from `ahead` on
//   Tile::multiply_row<Columns>(x, w, ldw, k, y, add)
//                          the same sums for one row of x and 1, 4 or 8 rows of W, in the order of memory
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu {

inline constexpr std::int64_t cache_line = 64, prefetch_distance = 32 * 1024;  // bytes

// Bytes of L1 for data.
[[nodiscard]] inline std::int64_t first_cache() {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  static const std::int64_t bytes = ::sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return 32 * 1024;
}

template <int Lines>
[[gnu::always_inline]] inline void prefetch(const char* from) {
#pragma GCC unroll 8
  for (int line = 0; line < Lines; ++line) __builtin_prefetch(from + line * cache_line, 0, 2);
}

template <class Tile>
class LinearStrips {
 public:
  using X = typename Tile::X;
  using W = typename Tile::W;

  // `x`, with row stride `ldx`, is a.x in the element type of the tile.
  LinearStrips(const LinearArgs& a, const X* x, std::int64_t ldx) : a_(a), x_(x), ldx_(ldx) {
    const std::int64_t blocks = (a.k + Tile::largest_block - 1) / Tile::largest_block;
    block_ = ((a.k + blocks - 1) / blocks + Tile::columns_of_k - 1) / Tile::columns_of_k * Tile::columns_of_k;
  }

  void run() const {
    std::int64_t n = a_.begin;
    if (a_.m == 1) {
      for (; n + 8 <= a_.end; n += 8) row_strip<8>(n);
      for (; n + 4 <= a_.end; n += 4) row_strip<4>(n);
      for (; n < a_.end; ++n) row_strip<1>(n);
    }
    const std::int64_t wide = tiles_in_a_strip();
    for (; n + 4 * wide <= a_.end; n += 4 * wide) strip<4, Tile::rows>(n, wide);
    for (; n + 4 <= a_.end; n += 4) strip<4, Tile::rows>(n, 1);
    for (; n < a_.end; ++n) strip<1, Tile::rows>(n, 1);
  }

 private:
  // For one row of x, row after row of W: memory bandwidth limits it.
  template <int Columns>
  void row_strip(std::int64_t n) const {
    const W* const w = static_cast<const W*>(a_.w) + n * a_.k;
    for (std::int64_t begin = 0; begin < a_.k; begin += block_)
      Tile::template multiply_row<Columns>(x_ + begin, w + begin, a_.k, std::min(block_, a_.k - begin),
                                           a_.y + n - a_.begin, begin > 0);
  }

  // As many tiles of four rows of W as L1 holds beside a tile of x that is used and the one that comes next.
  [[nodiscard]] std::int64_t tiles_in_a_strip() const {
    const std::int64_t of_w = 4 * block_ * static_cast<std::int64_t>(sizeof(W)),
                       of_x = Tile::rows * block_ * static_cast<std::int64_t>(sizeof(X));
    return a_.m <= Tile::rows ? 1 : std::clamp<std::int64_t>((first_cache() - 2 * of_x) / of_w, 1, 4);
  }

  // `wide` tiles of `Columns` rows of W from n on, against all rows of x in tiles of at most `Rows`, over all of k.
  template <int Columns, int Rows>
  void strip(std::int64_t n, std::int64_t wide) const {
    const W* const w = static_cast<const W*>(a_.w) + n * a_.k;
    // Tiles of nearly the same height: a single leftover row would halve the speed of its tile.
    const std::int64_t tiles = (a_.m + Rows - 1) / Rows, rows = a_.m / tiles, higher = a_.m - rows * tiles;
    // A block of the next strip is all over it.
    const std::int64_t row_bytes = a_.k * static_cast<std::int64_t>(sizeof(W)),
                       distance = std::max(prefetch_distance, wide * Columns * row_bytes);
    for (std::int64_t begin = 0; begin < a_.k; begin += block_) {
      const std::int64_t k = std::min(block_, a_.k - begin);
      const std::int64_t steps = std::max<std::int64_t>(1, k / Tile::columns_of_k);
      const std::int64_t lines = Columns * k * static_cast<std::int64_t>(sizeof(W)) / cache_line;
      const char* ahead =
          reinterpret_cast<const char*>(w) + distance + wide * Columns * begin * static_cast<std::int64_t>(sizeof(W));
      std::int64_t due = 0;  // tiles · the lines that should have been fetched by the end of a tile and have not
      for (std::int64_t row = 0, t = 0; t < tiles; ++t) {
        const std::int64_t height = t < higher ? rows + 1 : rows;
        for (std::int64_t c = 0; c < wide * Columns; c += Columns) {
          due += lines;
          const int at_once = due <= 0 ? 0 : due <= steps * tiles ? 1 : due <= 2 * steps * tiles ? 2 : 4;  // a step
          tile<Columns, Rows>(height, at_once, x_ + row * ldx_ + begin, w + c * a_.k + begin, k,
                              a_.y + row * a_.ldy + n + c - a_.begin, begin > 0, ahead);
          ahead += at_once * steps * cache_line;
          due -= at_once * steps * tiles;
        }
        row += height;
      }
    }
  }

  template <int Columns, int Rows>
  void tile(std::int64_t rows, int lines, const X* x, const W* w, std::int64_t k, float* y, bool add,
            const char* ahead) const {
    if (rows == Rows) {
      const auto multiply = [&]<int Lines>() {
        Tile::template multiply<Columns, Rows, Lines>(x, ldx_, w, a_.k, k, y, a_.ldy, add, ahead);
      };
      switch (lines) {
        case 0:
          return multiply.template operator()<0>();
        case 1:
          return multiply.template operator()<1>();
        case 2:
          return multiply.template operator()<2>();
        default:
          return multiply.template operator()<4>();
      }
    } else if constexpr (Rows > std::min(2, Tile::rows - 1)) {  // of tiles of at most two, one may be left
      tile<Columns, Rows - 1>(rows, lines, x, w, k, y, add, ahead);
    }
  }

  const LinearArgs& a_;
  const X* x_;
  std::int64_t ldx_, block_;
};

}  // namespace rlalgo::cpu
