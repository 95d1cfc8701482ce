// C (+)= alpha · A B with AVX-512, by tiles of 12 × 32 from packed panels: 24 running sums, 2 loads and 12 broadcasts for 24
// multiply-adds. B is packed once, [steps][32] a panel, padded with zeros; of A a thread packs 96 rows at a time, [steps][12] a tile,
// which stay in L2 while B's panels pass by. A step is what one multiply-add takes of k: one element of float32, packed as a float.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace rlalgo::tensor::avx512 {

#define RLALGO_AVX512 gnu::target("avx512f")

inline constexpr std::int64_t tile_rows = 12, tile_columns = 32, chunk_tiles = 8;

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

[[nodiscard]] inline __mmask16 first(std::int64_t lanes) {
  return lanes >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << std::max<std::int64_t>(lanes, 0)) - 1);
}

// out[c · ldo + r] = in[r · ldi + c] for 16 columns of four bytes of `Rows` rows; rows from `Rows` to 15 are zero. `some`: of each
// row of out.
template <int Rows, class T>
[[RLALGO_AVX512]] inline void turn(const T* in, std::int64_t ldi, float* out, std::int64_t ldo, __mmask16 some) {
  constexpr __mmask16 all = 0xFFFF;
  constexpr __mmask8 pairs = 0xFF;
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = i < Rows ? _mm512_loadu_ps(in + i * ldi) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_ps(all, r[i], r[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_ps(all, r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(pairs, a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(pairs, a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(pairs, b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(pairs, b, d));
  }
  constexpr int even = 0x88, odd = 0xDD;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {  // r[4 q + j]: of rows 4 q to 4 q + 3 column 4 l + j in quarter l
    const __m512 a = _mm512_maskz_shuffle_f32x4(all, r[j], r[4 + j], even);
    const __m512 b = _mm512_maskz_shuffle_f32x4(all, r[8 + j], r[12 + j], even);
    const __m512 c = _mm512_maskz_shuffle_f32x4(all, r[j], r[4 + j], odd);
    const __m512 d = _mm512_maskz_shuffle_f32x4(all, r[8 + j], r[12 + j], odd);
    _mm512_mask_storeu_ps(out + j * ldo, some, _mm512_maskz_shuffle_f32x4(all, a, b, even));
    _mm512_mask_storeu_ps(out + (4 + j) * ldo, some, _mm512_maskz_shuffle_f32x4(all, c, d, even));
    _mm512_mask_storeu_ps(out + (8 + j) * ldo, some, _mm512_maskz_shuffle_f32x4(all, a, b, odd));
    _mm512_mask_storeu_ps(out + (12 + j) * ldo, some, _mm512_maskz_shuffle_f32x4(all, c, d, odd));
  }
}

// out[j · Width + i] = the four bytes number j of row i of x, counted from column `from`, for sixteen j and `Width` rows.
template <int Width, class T>
[[RLALGO_AVX512]] inline void turn_tile(const Strided<T>& x, std::int64_t from, float* out) {
  constexpr int rows = Width < 16 ? Width : 16;
  for (int part = 0; 16 * part < Width; ++part)
    turn<rows>(x.at(16 * part, from), x.rows, out + 16 * part, Width, first(rows));
}

// The multiply-adds of a sum over k.
template <class Kernel>
[[nodiscard]] std::int64_t steps_of(std::int64_t k) {
  return (k + Kernel::per_step - 1) / Kernel::per_step;
}

struct Float32 {
  using Element = float;
  static constexpr std::int64_t per_step = 1;

  // out[j][i] = x[i, j] for `count` (at most Width) rows i and k columns j; rows from `count` on are zero.
  template <int Width>
  [[RLALGO_AVX512]] static void pack(const Strided<float>& x, std::int64_t count, std::int64_t k, float* out) {
    std::int64_t j = 0;
    if (x.rows == 1) {
      const __mmask16 from[2] = {first(count), first(count - 16)};
      for (; j < k; ++j)
        for (int part = 0; 16 * part < Width; ++part)
          _mm512_mask_storeu_ps(out + j * Width + 16 * part, first(Width - 16 * part),
                                _mm512_maskz_loadu_ps(from[part], x.at(16 * part, j)));
      return;
    }
    if (count == Width)
      for (; j + 16 <= k; j += 16) turn_tile<Width>(x, j, out + j * Width);
    for (; j < k; ++j)
      for (std::int64_t i = 0; i < Width; ++i) out[j * Width + i] = i < count ? *x.at(i, j) : 0.0f;
  }

  // `Rows` rows and the lanes of `low` and `high` of C.
  template <int Rows>
  [[RLALGO_AVX512]] static void tile(const float* a, const float* b, std::int64_t k, const Destination<float>& to,
                                     __mmask16 low, __mmask16 high) {
    __m512 sum[Rows][2];
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (std::int64_t j = 0; j < k; ++j, a += tile_rows, b += tile_columns) {
      const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 12
      for (int i = 0; i < Rows; ++i) {
        const __m512 x = _mm512_set1_ps(a[i]);
        sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
        sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
      }
    }
    const __m512 factor = _mm512_set1_ps(to.alpha);
    const bool adds = to.adds || !to.first;
    float* c = to.c;
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i, c += to.ldc) {
      __m512 c0 = _mm512_mul_ps(sum[i][0], factor), c1 = _mm512_mul_ps(sum[i][1], factor);
      if (adds) {
        c0 = _mm512_add_ps(_mm512_maskz_loadu_ps(low, c), c0);
        c1 = _mm512_add_ps(_mm512_maskz_loadu_ps(high, c + 16), c1);
      }
      _mm512_mask_storeu_ps(c, low, c0);
      _mm512_mask_storeu_ps(c + 16, high, c1);
    }
  }
};

template <class Kernel, int Rows = tile_rows>
inline void tile_of(std::int64_t rows, const float* a, const float* b, std::int64_t steps,
                    const Destination<typename Kernel::Element>& to, __mmask16 low, __mmask16 high) {
  if (rows == Rows) return Kernel::template tile<Rows>(a, b, steps, to, low, high);
  if constexpr (Rows > 1) tile_of<Kernel, Rows - 1>(rows, a, b, steps, to, low, high);
}

// Rows of C from `row` on and its columns from `column` on, of packed B: `room` holds chunk_tiles · tile_rows · steps floats.
struct Part {
  std::int64_t row, row_end, column, column_end;
};
template <class Kernel>
inline void multiply_part(const Part& part, const Strided<typename Kernel::Element>& a, const float* b, std::int64_t k,
                          const Destination<typename Kernel::Element>& to, float* room) {
  constexpr std::int64_t chunk = chunk_tiles * tile_rows;
  const std::int64_t steps = steps_of<Kernel>(k);
  for (std::int64_t row = part.row; row < part.row_end; row += chunk) {
    const std::int64_t end = std::min(part.row_end, row + chunk);
    for (std::int64_t i = row; i < end; i += tile_rows)
      Kernel::template pack<tile_rows>({a.at(i, 0), a.rows, a.columns}, std::min(tile_rows, end - i), k,
                                       room + (i - row) * steps);
    for (std::int64_t n = part.column; n < part.column_end; n += tile_columns) {
      const __mmask16 low = first(part.column_end - n), high = first(part.column_end - n - 16);
      for (std::int64_t i = row; i < end; i += tile_rows)
        tile_of<Kernel>(std::min(tile_rows, end - i), room + (i - row) * steps, b + n * steps, steps, to.at(i, n), low,
                        high);
    }
  }
}

#undef RLALGO_AVX512

}  // namespace rlalgo::tensor::avx512

#endif
