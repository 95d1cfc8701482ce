// C (+)= alpha · A B by tiles from packed panels, whatever the instruction set: a tile of C is summed in registers over a block of k.
// B is packed once, [steps][tile_columns] a panel, padded with zeros; of A a thread packs 96 rows at a time, [steps][tile_rows] a
// tile, which stay in L2 while B's panels pass by.
//
// A kernel is what one instruction set multiplies at a time:
//   Kernel::Element                      of A, B and C
//   Kernel::per_step                     elements of k in a step, packed as one float: what one multiply-add takes
//   Kernel::whole_steps                  packed steps are padded to a multiple of it
//   Kernel::block                        of k, in steps, at most; a multiple of whole_steps
//   Kernel::tile_rows, tile_columns      of C in a tile
//   Kernel::Scope                        an object that a thread has while it multiplies tiles
//   Kernel::pack<Width>(x, count, k, out)
//                                        out[s][i] = step s of row i of x for `count` (at most Width) rows and k columns; rows from
//                                        `count` on are zero
//   Kernel::tile<Rows>(a, b, steps, to, columns)
//                                        so many rows and `columns` (at most tile_columns) columns of C from a tile of A and a panel of B
//   Kernel::own_rows                     it has A in another order than B, and takes the number of rows while it runs: then there are
//                                        Kernel::pack_rows(x, count, k, out), which packs A, and Kernel::tile(rows, a, b, steps, to, columns)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace rlalgo::cpu::tiles {

inline constexpr std::int64_t chunk_rows = 96;

struct Nothing {};  // to have while tiles are multiplied

// Memory for packed floats from a cache line on: sixteen lanes do not lie across two.
class Room {
 public:
  [[nodiscard]] float* of(std::int64_t floats) {
    const auto lines = static_cast<std::size_t>((floats + 15) / 16);
    if (lines_.size() < lines) lines_.resize(lines);
    return lines_.front().floats.data();
  }

 private:
  struct alignas(64) Line {
    std::array<float, 16> floats;
  };
  std::vector<Line> lines_;
};

// Element [i, j] is at data[i · rows + j · columns], and one of the two is 1.
template <class T>
struct Strided {
  const T* data;
  std::int64_t rows, columns;
  [[nodiscard]] const T* at(std::int64_t i, std::int64_t j) const { return data + i * rows + j * columns; }
};

// Where the sums of one block of k go.
template <class T>
struct Destination {
  T* c;
  std::int64_t ldc;
  bool adds;  // to what C holds
  float alpha;
  bool first = true, last = true;  // block of k
  float* waiting = nullptr;        // [m, ldw]: sums of the blocks before, for a type that would round them
  std::int64_t ldw = 0;

  [[nodiscard]] Destination at(std::int64_t i, std::int64_t j) const {
    Destination to = *this;
    to.c += i * ldc + j;
    if (waiting != nullptr) to.waiting += i * ldw + j;
    return to;
  }
};

// The multiply-adds of a sum over k, with those that are padding.
template <class Kernel>
[[nodiscard]] std::int64_t steps_of(std::int64_t k) {
  constexpr std::int64_t whole = Kernel::per_step * Kernel::whole_steps;
  return (k + whole - 1) / whole * Kernel::whole_steps;
}

template <class Kernel, int Rows = Kernel::tile_rows>
inline void tile_of(std::int64_t rows, const float* a, const float* b, std::int64_t steps,
                    const Destination<typename Kernel::Element>& to, std::int64_t columns) {
  if constexpr (Kernel::own_rows) {
    Kernel::tile(rows, a, b, steps, to, columns);
  } else {
    if (rows == Rows) return Kernel::template tile<Rows>(a, b, steps, to, columns);
    if constexpr (Rows > 1) tile_of<Kernel, Rows - 1>(rows, a, b, steps, to, columns);
  }
}

template <class Kernel>
inline void pack_rows(const Strided<typename Kernel::Element>& x, std::int64_t count, std::int64_t k, float* out) {
  if constexpr (Kernel::own_rows)
    Kernel::pack_rows(x, count, k, out);
  else
    Kernel::template pack<Kernel::tile_rows>(x, count, k, out);
}

// Rows of C from `row` on and its columns from `column` on, of packed B: `room` holds chunk_rows · steps floats.
struct Part {
  std::int64_t row, row_end, column, column_end;
};
template <class Kernel>
inline void multiply_part(const Part& part, const Strided<typename Kernel::Element>& a, const float* b, std::int64_t k,
                          const Destination<typename Kernel::Element>& to, float* room) {
  constexpr std::int64_t height = Kernel::tile_rows, width = Kernel::tile_columns;
  static_assert(chunk_rows % height == 0);
  const std::int64_t steps = steps_of<Kernel>(k);
  [[maybe_unused]] const typename Kernel::Scope scope;
  for (std::int64_t row = part.row; row < part.row_end; row += chunk_rows) {
    const std::int64_t end = std::min(part.row_end, row + chunk_rows);
    for (std::int64_t i = row; i < end; i += height)
      pack_rows<Kernel>({a.at(i, 0), a.rows, a.columns}, std::min(height, end - i), k, room + (i - row) * steps);
    for (std::int64_t n = part.column; n < part.column_end; n += width)
      for (std::int64_t i = row; i < end; i += height)
        tile_of<Kernel>(std::min(height, end - i), room + (i - row) * steps, b + n * steps, steps, to.at(i, n),
                        std::min(width, part.column_end - n));
  }
}

}  // namespace rlalgo::cpu::tiles
