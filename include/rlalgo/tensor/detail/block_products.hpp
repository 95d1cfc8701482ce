// Products of blocks with float32 sums by the tiles of a kernel (product_tiles.hpp), for algorithms that make and use blocks while
// they lie in cache:
//
//   out[i, n] (+)= Σ_s a[i, s]·b[s, n]
//
// Left sides are packed in tiles of rows, right sides in panels of columns; a panel may be longer than what a product takes of it.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <c10/util/BFloat16.h>

#include <rlalgo/cpu/products.hpp>

namespace rlalgo::tensor::detail {

template <class Kernel>
struct BlockProducts {
  using Element = typename Kernel::Element;
  using Number = std::conditional_t<sizeof(Element) == sizeof(float), float, c10::BFloat16>;
  static constexpr std::int64_t height = Kernel::tile_rows, width = Kernel::tile_columns;

  // Packed columns.
  struct Right {
    const float* data;
    std::int64_t panel;  // floats of a panel
    [[nodiscard]] Right from(std::int64_t column) const { return {data + column / width * panel, panel}; }
  };

  // x[i, s] at i · rows + s · columns, one of which is 1.
  static cpu::tiles::Strided<Element> strided(const Number* x, std::int64_t rows, std::int64_t columns) {
    return {reinterpret_cast<const Element*>(x), rows, columns};
  }
  static std::int64_t up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
  static std::int64_t steps(std::int64_t depth) { return cpu::tiles::steps_of<Kernel>(depth); }

  // a[i, s] = x[i, s]
  static const float* pack_left(const cpu::tiles::Strided<Element>& x, std::int64_t rows, std::int64_t depth,
                                cpu::tiles::Room& room) {
    float* const out = room.of(up(rows, height) * steps(depth));
    for (std::int64_t i = 0; i < rows; i += height)
      cpu::tiles::pack_rows<Kernel>({x.at(i, 0), x.rows, x.columns}, std::min(height, rows - i), depth,
                                    out + i * steps(depth));
    return out;
  }
  // b[s, n] = x[n, s], panel after panel from `out` on.
  static void pack_panels(const cpu::tiles::Strided<Element>& x, std::int64_t columns, std::int64_t depth,
                          std::int64_t panel, float* out) {
    for (std::int64_t n = 0; n < columns; n += width, out += panel)
      Kernel::template pack<width>({x.at(n, 0), x.rows, x.columns}, std::min(width, columns - n), depth, out);
  }
  static Right pack_right(const cpu::tiles::Strided<Element>& x, std::int64_t columns, std::int64_t depth,
                          cpu::tiles::Room& room) {
    const std::int64_t panel = width * steps(depth);
    float* const out = room.of(up(columns, width) / width * panel);
    pack_panels(x, columns, depth, panel, out);
    return {out, panel};
  }

  static void multiply(std::int64_t rows, const float* a, const Right& b, std::int64_t columns, std::int64_t depth,
                       float* out, std::int64_t stride, bool adds) {
    for (std::int64_t n = 0; n < columns; n += width)
      for (std::int64_t i = 0; i < rows; i += height)
        cpu::tiles::tile_of<Kernel>(std::min(height, rows - i), a + i * steps(depth), b.from(n).data, steps(depth),
                                    sums(out + i * stride + n, stride, adds), std::min(width, columns - n));
  }

  // With a left side that is packed for this product alone.
  static void multiply(const cpu::tiles::Strided<Element>& a, std::int64_t rows, const Right& b, std::int64_t columns,
                       std::int64_t depth, float* out, std::int64_t stride, bool adds, cpu::tiles::Room& room) {
    multiply(rows, pack_left(a, rows, depth, room), b, columns, depth, out, stride, adds);
  }

 private:
  static cpu::tiles::Destination<Element> sums(float* out, std::int64_t stride, bool adds) {
    if constexpr (sizeof(Element) == sizeof(float))
      return {.c = out, .ldc = stride, .adds = adds, .alpha = 1.0f};
    else  // what waits for the next block of k is float32
      return {.c = nullptr,
              .ldc = 0,
              .adds = false,
              .alpha = 1.0f,
              .first = !adds,
              .last = false,
              .waiting = out,
              .ldw = stride};
  }
};

}  // namespace rlalgo::tensor::detail

#endif
