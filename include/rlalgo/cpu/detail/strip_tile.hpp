// A body (instruction_set.hpp): the tile with which linear_strips.hpp multiplies: 4 rows of W by `most_rows` (of the set) rows of x, each of whose sums
// is a register, added over its lanes at the end of a block.
//
// The registers of x stay while those of W pass by, each loaded once. (Every loop over the sums is unrolled: one that is not keeps
// them in memory and halves the speed.)
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET {

template <class XElement, class WElement>
struct StripTile {
  using X = XElement;
  using W = WElement;
  using Vector = decltype(load(
      static_cast<const X*>(nullptr)));  // of X and of W: floats, or pairs of which fma adds both products
  static constexpr std::int64_t step = count * 4 / static_cast<std::int64_t>(sizeof(X));
  static constexpr std::int64_t columns_of_k = step, largest_block = step < 32 ? 640 : 1280;
  static constexpr int rows = most_rows;

  template <int Columns, int Rows, int Lines>
  static void multiply(const X* x, std::int64_t ldx, const W* w, std::int64_t ldw, std::int64_t k, float* y,
                       std::int64_t ldy, bool add, const char* ahead) {
    Floats sums[Rows][Columns];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) sums[i][n] = zeros();
    std::int64_t j = 0;
#pragma GCC unroll 4
    for (; j + step <= k; j += step, ahead += Lines * cache_line) {
      prefetch<Lines>(ahead);
      Vector xs[Rows];
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) xs[i] = load(x + i * ldx + j);
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) {
        const Vector ws = load(w + n * ldw + j);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) sums[i][n] = fma(xs[i], ws, sums[i][n]);
      }
    }
    if (j < k) {
      const auto some = first(k - j);
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) {
        const Vector ws = load(w + n * ldw + j, some);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) sums[i][n] = fma(load(x + i * ldx + j, some), ws, sums[i][n]);
      }
    }
    store_sums<Columns, Rows>(sums, y, ldy, add);
  }

  template <int Columns>
  static void multiply_row(const X* x, const W* w, std::int64_t ldw, std::int64_t k, float* y, bool add) {
    Floats sums[1][Columns];
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) {
      const W* const row = w + n * ldw;
      Floats s = zeros();
      std::int64_t j = 0;
      for (; j + step <= k; j += step) {
        prefetch<1>(reinterpret_cast<const char*>(row + j) + prefetch_distance);
        s = fma(load(x + j), load(row + j), s);
      }
      if (j < k) s = fma(load(x + j, first(k - j)), load(row + j, first(k - j)), s);
      sums[0][n] = s;
    }
    store_sums<Columns, 1>(sums, y, 0, add);
  }
};

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
