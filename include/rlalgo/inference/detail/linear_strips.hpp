// y = x Wᵀ for few rows of x, by strips of W: a strip stays in L1 while the rows of x pass by, and the next one is
// prefetched meanwhile, so that the weights are read once, as they lie in memory. k is cut into blocks so that a strip
// and the rows of x fit. The sum of one output depends on k only: blocks in order, each as the tile sums it.
//
// A tile is what one instruction set multiplies at a time:
//   Tile::X, Tile::W       elements of x and W
//   Tile::columns_of_k     blocks of k are multiples of it
//   Tile::largest_block    of k
//   Tile::rows             of x in a tile, at most
//   Tile::multiply<Columns, Rows>(x, ldx, w, ldw, k, y, ldy, add)
//                          y[i, n] (+)= Σ_j x[i, j] w[n, j]: `Rows` rows of x, `Columns` (1, 4 or 8) rows of W
#pragma once

#include <algorithm>
#include <cstdint>

#include <rlalgo/inference/detail/kernels.hpp>

namespace rlalgo::inference::detail {

// Prefetches `columns` pieces of `lines` cache lines, a few lines at each call.
struct Prefetch {
  const char* piece;
  std::int64_t stride;  // bytes from piece to piece
  std::int64_t lines;
  std::int64_t columns;
  std::int64_t line = 0;
  void next(std::int64_t count) {
    for (; count > 0 && columns > 0; --count) {
      __builtin_prefetch(piece + line * 64);
      if (++line < lines) continue;
      line = 0;
      --columns;
      piece += stride;
    }
  }
};

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

  // One row of x takes wider strips: memory bandwidth limits it anyway.
  void run() const {
    std::int64_t n = a_.begin;
    if (a_.m == 1)
      for (; n + 8 <= a_.end; n += 8) strip<8, 1>(n);
    for (; n + 4 <= a_.end; n += 4) strip<4, Tile::rows>(n);
    for (; n < a_.end; ++n) strip<1, Tile::rows>(n);
  }

 private:
  // `Columns` rows of W from n on, against all rows of x in tiles of at most `Rows`, over all of k.
  template <int Columns, int Rows>
  void strip(std::int64_t n) const {
    const W* const w = static_cast<const W*>(a_.w) + n * a_.k;
    // Tiles of nearly the same height: a single leftover row would halve the speed of its tile.
    const std::int64_t tiles = (a_.m + Rows - 1) / Rows;
    for (std::int64_t begin = 0; begin < a_.k; begin += block_) {
      const std::int64_t k = std::min(block_, a_.k - begin);
      const W* const next = begin + k < a_.k ? w + begin + k : w + Columns * a_.k;
      const std::int64_t lines = (k * static_cast<std::int64_t>(sizeof(W)) + 63) / 64;
      Prefetch prefetch{reinterpret_cast<const char*>(next), a_.k * static_cast<std::int64_t>(sizeof(W)), lines,
                        a_.m > 1 ? Columns : 0};
      const std::int64_t share = (lines * Columns + tiles - 1) / tiles;
      for (std::int64_t row = 0, t = tiles; t > 0; --t) {
        const std::int64_t rows = (a_.m - row + t - 1) / t;
        prefetch.next(share);
        tile<Columns, Rows>(rows, row, w + begin, begin, k, a_.y + row * a_.ldy + n - a_.begin);
        row += rows;
      }
    }
  }

  template <int Columns, int Rows>
  void tile(std::int64_t rows, std::int64_t row, const W* w, std::int64_t begin, std::int64_t k, float* y) const {
    if (rows == Rows)
      Tile::template multiply<Columns, Rows>(x_ + row * ldx_ + begin, ldx_, w, a_.k, k, y, a_.ldy, begin > 0);
    else if constexpr (Rows > 1)
      tile<Columns, Rows - 1>(rows, row, w, begin, k, y);
  }

  const LinearArgs& a_;
  const X* x_;
  std::int64_t ldx_, block_;
};

}  // namespace rlalgo::inference::detail
