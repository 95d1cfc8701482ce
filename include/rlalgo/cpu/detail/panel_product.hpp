// A body (instruction_set.hpp): y = x Wᵀ of float32 weights with sixteen lanes. A lane of a sum is a row of x or a row of W, so nothing is added across lanes, and every output is
// one chain of multiply-adds in the order of k, whatever its neighbours are.
//
// Rows of x are transposed into panels of 16 to 64 of them, [k, rows]; a tile is a panel by 6 to 16 rows of W, of which one element at a time
// is in all lanes: 16 to 24 running sums. k is cut into blocks so that a block of a panel stays in L1 while a strip of W passes by. A few
// rows that are left, or alone, meet sixteen rows of W that are transposed in registers instead; W's way from memory takes longer than that.
//
// W is read once, as it lies, a strip of `strip_rows` at a time; the next strip is fetched into L2 meanwhile, as evenly as the tiles compute.
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET {

inline constexpr std::int64_t strip_rows = 48, widest_panel = 64;
// Rows of W in a tile with 16·P rows of x, and in one of what is left of a strip.
template <int P>
inline constexpr int tile_columns = P == 1   ? 16
                                    : P == 4 ? 6
                                             : 8;
template <int P>
inline constexpr int short_tile_columns = P <= 2 ? 8 : 4;
// Rows of x that are no panel: more of them take as long as sixteen do.
inline constexpr std::int64_t most_rows_alone = 8, most_rows_left = 3;

// out[c · ldo + r] = in[r · ldi + c] for `rows` and `columns` up to 16; lanes from `rows` to 15 of out are zero, if `whole`, or stay.
inline void transpose_square(const float* in, std::int64_t ldi, std::int64_t rows, std::int64_t columns, float* out,
                             std::int64_t ldo, bool whole) {
  const Some read = first(columns), none = first(0), written = first(whole ? 16 : rows);
  Floats r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = load(in + i * ldi, i < rows ? read : none);
  transpose(r);
#pragma GCC unroll 16
  for (int c = 0; c < 16; ++c)
    if (c < columns) store(out + c * ldo, written, r[c]);
}

// `rows` rows of x, cut as evenly as sixteens allow into panels of at most widest_panel.
class Panels {
 public:
  explicit Panels(std::int64_t rows)
      : sixteens_((rows + 15) / 16), count_((16 * sixteens_ + widest_panel - 1) / widest_panel) {}

  [[nodiscard]] std::int64_t sixteens() const { return sixteens_; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t begin(std::int64_t panel) const { return 16 * (sixteens_ * panel / count_); }

 private:
  std::int64_t sixteens_, count_;
};

// What a thread has made of x: its panels, [k, rows] each, the last one with zeros.
class TransposedRows {
 public:
  const float* of(const LinearArgs& a, std::int64_t rows) {
    if (a.x_version != 0 && a.x_version == version_ && a.x == x_ && rows == rows_ && a.k == k_) return transposed();
    const Panels panels(rows);
    grow(static_cast<std::size_t>(16 * panels.sixteens() * a.k + line_floats));
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      const std::int64_t begin = panels.begin(p), width = panels.begin(p + 1) - begin;
      float* const out = transposed() + begin * a.k;
      for (std::int64_t i = 0; i < width; i += 16)
        for (std::int64_t j = 0; j < a.k; j += 16)
          transpose_square(a.x + (begin + i) * a.ldx + j, a.ldx, std::min<std::int64_t>(16, rows - begin - i),
                           std::min<std::int64_t>(16, a.k - j), out + j * width + i, width, true);
    }
    version_ = a.x_version, x_ = a.x, rows_ = rows, k_ = a.k;
    return transposed();
  }

 private:
  static constexpr std::int64_t line_floats = cache_line / sizeof(float);

  // A thread may meet its first or longest rows late, and a warm engine allocates nothing: small ones have room from the start.
  void grow(std::size_t floats) {
    if (floats > small && floats > room_.size()) room_.resize(std::bit_ceil(floats));
  }

  // From a cache line on.
  [[nodiscard]] float* transposed() {
    float* const room = room_.empty() ? few_ : room_.data();
    const auto at = reinterpret_cast<std::uintptr_t>(room);
    return room + (cache_line - at % cache_line) % cache_line / sizeof(float);
  }

  static constexpr std::size_t small = 16 * 1024;
  float few_[small] = {};
  std::vector<float> room_;
  std::uint64_t version_ = 0;
  const float* x_ = nullptr;
  std::int64_t rows_ = 0, k_ = 0;
};

// sums[c, :16·P] (+)= Σ_j w[c, j] x[j, :16·P] for `Columns` rows of W; every four steps of j prefetch `Lines` cache lines.
template <int P, int Columns, int Lines>
inline void panel_tile(const float* x, const float* w, std::int64_t ldw, std::int64_t k, float* sums, bool add,
                       const char* ahead) {
  constexpr std::int64_t width = 16 * P;
  Floats sum[Columns][P];
#pragma GCC unroll 24
  for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[c][p] = add ? load(sums + c * widest_panel + 16 * p) : zeros();
  const auto step = [&](std::int64_t j) __attribute__((always_inline)) {
    Floats xs[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) xs[p] = load(x + j * width + 16 * p);
#pragma GCC unroll 24
    for (int c = 0; c < Columns; ++c) {
      const Floats element = all(w[c * ldw + j]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sum[c][p] = fma(xs[p], element, sum[c][p]);
    }
  };
  std::int64_t j = 0;
  for (; j + 4 <= k; j += 4, ahead += Lines * cache_line) {
    prefetch<Lines>(ahead);
#pragma GCC unroll 4
    for (int unrolled = 0; unrolled < 4; ++unrolled) step(j + unrolled);
  }
  for (; j < k; ++j) step(j);
#pragma GCC unroll 24
  for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) store(sums + c * widest_panel + 16 * p, sum[c][p]);
}

// y[i, n] = Σ_j x[i, j] w[n, j] for `Rows` rows of x and `columns` (16 at most) rows of W.
template <int Rows, bool Fetches>
inline void row_tile(const float* x, std::int64_t ldx, const float* w, std::int64_t columns, std::int64_t k, float* y,
                     std::int64_t ldy, const char* ahead) {
  Floats sum[Rows];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) sum[i] = zeros();
  std::int64_t j = 0;
  for (; columns == 16 && j + 16 <= k; j += 16) {
#pragma GCC unroll 4
    for (int q = 0; q < 16; q += 4) {
      if constexpr (Fetches) {
        prefetch<4>(ahead);
        ahead += 4 * cache_line;
      }
      Floats ws[4];
      load_columns(ws, w + j + q, k);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c)
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) sum[i] = fma(all(x[i * ldx + j + q + c]), ws[c], sum[i]);
    }
  }
  for (; j < k; j += 16) {
    const std::int64_t count = std::min<std::int64_t>(16, k - j);
    alignas(64) float transposed[16 * 16];
    transpose_square(w + j, k, columns, count, transposed, 16, true);
    for (std::int64_t c = 0; c < count; ++c)
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) sum[i] = fma(all(x[i * ldx + j + c]), load(transposed + 16 * c), sum[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) store(y + i * ldy, first(columns), sum[i]);
}

class PanelProduct {
 public:
  explicit PanelProduct(const LinearArgs& a)
      : a_(a),
        left_(a.m % 16 <= (a.m < 16 ? most_rows_alone : most_rows_left) ? a.m % 16 : 0),
        rows_(a.m - left_),
        panels_(rows_) {}

  void run() {
    // Rows that nobody counts (what an adapter made of x) come between tasks whose rows are the same.
    thread_local TransposedRows counted, passing;
    if (rows_ > 0) x_ = (a_.x_version != 0 ? counted : passing).of(a_, rows_);
    for (std::int64_t n = a_.begin; n < a_.end; n += strip_rows) strip(n, std::min(strip_rows, a_.end - n));
  }

 private:
  [[nodiscard]] const float* w(std::int64_t n) const { return static_cast<const float*>(a_.w) + n * a_.k; }

  void strip(std::int64_t n, std::int64_t columns) {
    ahead_ = reinterpret_cast<const char*>(w(n + strip_rows));
    due_ = 0;
    for (std::int64_t p = 0; p < panels_.count(); ++p) {
      switch ((panels_.begin(p + 1) - panels_.begin(p)) / 16) {
        case 1:
          panel<1>(panels_.begin(p), n, columns);
          break;
        case 2:
          panel<2>(panels_.begin(p), n, columns);
          break;
        case 3:
          panel<3>(panels_.begin(p), n, columns);
          break;
        default:
          panel<4>(panels_.begin(p), n, columns);
      }
    }
    for (std::int64_t c = 0; c < columns && left_ > 0; c += 16)
      rows_left<most_rows_alone>(n + c, std::min<std::int64_t>(16, columns - c));
  }

  // A panel against a strip.
  template <int P>
  void panel(std::int64_t begin, std::int64_t n, std::int64_t columns) {
    // Half of L1 for a block.
    const std::int64_t block =
        std::max<std::int64_t>(16, first_cache() / 2 / (16 * P * static_cast<std::int64_t>(sizeof(float))) / 4 * 4);
    for (std::int64_t j = 0; j < a_.k; j += block) {
      const float* const x = x_ + begin * a_.k + j * 16 * P;
      const std::int64_t k = std::min(block, a_.k - j);
      std::int64_t c = 0;
      for (; c + tile_columns<P> <= columns; c += tile_columns<P>) tile<P, tile_columns<P>>(x, n, c, j, k);
      for (; c + short_tile_columns<P> <= columns; c += short_tile_columns<P>)
        tile<P, short_tile_columns<P>>(x, n, c, j, k);
      for (; c < columns; ++c) tile<P, 1>(x, n, c, j, k);
    }
    for (std::int64_t c = 0; c < columns; c += 16)
      for (std::int64_t i = begin; i < std::min(rows_, begin + 16 * P); i += 16)
        transpose_square(sums_ + c * widest_panel + i - begin, widest_panel, std::min<std::int64_t>(16, columns - c),
                         std::min<std::int64_t>(16, rows_ - i), a_.y + i * a_.ldy + n + c - a_.begin, a_.ldy, false);
  }

  template <int P, int Columns>
  void tile(const float* x, std::int64_t n, std::int64_t c, std::int64_t j, std::int64_t k) {
    // In lines · 16 · sixteens: what this tile has to fetch for its share of the next strip, and what one line a step brings.
    const std::int64_t line = 16 * panels_.sixteens(), once = k / 4 * line;
    due_ += P * Columns * k;
    const auto multiply = [&]<int Lines>() {
      panel_tile<P, Columns, Lines>(x, w(n + c) + j, a_.k, k, sums_ + c * widest_panel, j > 0, ahead_);
      ahead_ += Lines * (k / 4) * cache_line;
      due_ -= Lines * once;
    };
    if (due_ <= 0) return multiply.template operator()<0>();
    if (due_ <= once) return multiply.template operator()<1>();
    if (due_ <= 2 * once) return multiply.template operator()<2>();
    if (due_ <= 4 * once) return multiply.template operator()<4>();
    multiply.template operator()<8>();
  }

  template <int Rows>
  void rows_left(std::int64_t n, std::int64_t columns) {
    if (left_ == Rows) {
      const auto multiply = [&]<bool Fetches>() {
        row_tile<Rows, Fetches>(a_.x + rows_ * a_.ldx, a_.ldx, w(n), columns, a_.k,
                                a_.y + rows_ * a_.ldy + n - a_.begin, a_.ldy, reinterpret_cast<const char*>(w(n + 16)));
      };
      rows_ > 0 ? multiply.template operator()<false>() : multiply.template operator()<true>();
    } else if constexpr (Rows > 1) {
      rows_left<Rows - 1>(n, columns);
    }
  }

  const LinearArgs& a_;
  std::int64_t left_, rows_;  // the last rows of x, and those before, which are in panels
  Panels panels_;
  const float* x_ = nullptr;
  const char* ahead_ = nullptr;
  std::int64_t due_ = 0;
  alignas(cache_line) float sums_[strip_rows * widest_panel];
};

inline void linear_by_panels(const LinearArgs& a) { PanelProduct(a).run(); }

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
