// y = x Wᵀ by W in blocks of sixteen rows (packed_weights.hpp): which blocks meet which rows of x, and when what comes next is fetched.
//
// A tile of up to Tile::most_rows rows of x meets several blocks; tiles are of nearly the same height. W is read once, as it lies; while the first
// tiles compute, what lies behind their blocks is fetched into L2, by the tiles in turn. A tile is what one instruction set multiplies:
//   Tile::most_rows                of x
//   Tile::most_blocks(rows)        that so many rows of x, or most_rows of more, meet at a time: 1 to 4
//   tile.block_bytes()
//   tile.multiply<Blocks, Rows>(row, w, out, ahead)
//                                  rows [row, row + Rows) of x by `Blocks` blocks from w on
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu {

// Where a tile writes: column c, from `begin` to `end`, of row i is y[i · ldy + c]; columns of its blocks are numbered from 0.
struct BlockOut {
  float* y;
  std::int64_t ldy, begin, end;
};

// What a tile fetches: `bytes` behind each `period`-th piece of its blocks, from `phase` on.
struct BlockAhead {
  std::int64_t bytes, phase, period;
};

template <class Tile>
class BlockProduct {
 public:
  BlockProduct(const LinearArgs& a, const Tile& tile) : a_(a), tile_(tile) {}

  void run() const {
    const std::int64_t most = Tile::most_blocks(std::min<std::int64_t>(a_.m, Tile::most_rows)), end = blocks_of(a_.end);
    for (std::int64_t block = a_.begin / rows_of_a_block; block < end; block += most)
      meet<4>(std::min(most, end - block), block);
  }

 private:
  template <int Blocks>
  void meet(std::int64_t blocks, std::int64_t block) const {
    if constexpr (Blocks > 1)
      if (blocks < Blocks) return meet<Blocks - 1>(blocks, block);
    const std::int64_t tiles = (a_.m + Tile::most_rows - 1) / Tile::most_rows, rows = a_.m / tiles,
                       higher = a_.m - rows * tiles;
    const std::int64_t first = block * rows_of_a_block;
    BlockOut out{.y = a_.y + first - a_.begin, .ldy = a_.ldy, .begin = a_.begin - first, .end = a_.end - first};
    const auto* const w = static_cast<const std::byte*>(a_.w) + block * tile_.block_bytes();
    for (std::int64_t row = 0, t = 0; t < tiles; ++t) {
      const std::int64_t height = t < higher ? rows + 1 : rows;
      tile<Blocks, Tile::most_rows>(
          height, row, w, out,
          {.bytes = std::max(prefetch_distance / Blocks, Blocks * tile_.block_bytes()), .phase = t, .period = tiles});
      row += height;
    }
  }

  template <int Blocks, int Rows>
  void tile(std::int64_t rows, std::int64_t row, const std::byte* w, const BlockOut& out,
            const BlockAhead& ahead) const {
    if constexpr (Blocks <= Tile::most_blocks(Rows))
      if (rows == Rows) return tile_.template multiply<Blocks, Rows>(row, w, out, ahead);
    if constexpr (Rows > 1) tile<Blocks, Rows - 1>(rows, row, w, out, ahead);
  }

  const LinearArgs& a_;
  const Tile& tile_;
};

}  // namespace rlalgo::cpu
