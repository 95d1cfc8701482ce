// Registers in C++ alone, for any machine: fours of floats, in the vector types of GNU compilers, which make them of single floats where a
// processor has none. The operations are those that every set of registers has (instruction_set.hpp), and these say what they do: with
// RLALGO_CPU_FUSED 1 the vector ones do the same, to the bit.
//
// RLALGO_CPU_LANES is the number of floats, 8 or 16. RLALGO_CPU_FUSED 1: fma() adds a product that is not rounded, which is slow where the
// processor has no instruction for it; 0: it is rounded first.
//
//   Floats, count               so many floats
//   Some, first(n)              the first n lanes, at most all
//   within(i, begin, end)       of the numbers i, i + 1, … those in [begin, end)
//   all(x), zeros()
//   load(p), load(p, some)      of float or bfloat16, which is any type of two bytes; lanes that are not in `some` are 0, and not read
//   store(p, x), store(p, some, x)
//                               bfloat16 is rounded to nearest, ties to even
//   x + y, x - y, x * y, x / y  (a compiler may make an fma of a product and a sum: a product that is added is one of the next ones)
//   product(x, y)               x·y, rounded
//   fma(x, y, z), fnma(x, y, z), fms(x, y, z)
//                               x·y + z, z − x·y, x·y − z; the first two of single floats, too
//   larger(x, y), smaller(x, y) y where one of them is NaN
//   other_than(x, y)            the lanes that are not y
//   pick(some, x, y)            the lanes `some` of x, the others of y
//   keep(some, x)               the others 0
//   nearest(x)                  whole numbers, of two as near the even one
//   scaled_above(x, limit, p, n)
//                               p · 2ⁿ of whole n from −126 to 128 where x is above the limit or NaN, else 0; 2¹²⁸ is infinite in eight lanes
//   sum(x), largest(x)          over the lanes, always in one order
//   store_sums<Columns, Rows>(sums, y, ldy, adds)
//                               y[i·ldy + n] (+)= the lanes of sums[i][n], always in one order; Columns is 1 or a multiple of 4
//   transpose(rows)             lane n of rows[i] becomes lane i of rows[n], of `count` rows
//   load_columns(r, w, ld)      r[j] = w[n, j] of `count` rows n, for j < 4
#ifdef RLALGO_CPU_LANES

namespace rlalgo::cpu::RLALGO_CPU_SET {

inline constexpr std::int64_t count = RLALGO_CPU_LANES;

using Four = float __attribute__((vector_size(16)));
inline constexpr std::int64_t fours = count / 4;

struct Floats {
  Four four[fours];

  [[nodiscard]] RLALGO_CPU_OPERATION float lane(std::int64_t i) const { return four[i / 4][i % 4]; }
  RLALGO_CPU_OPERATION void set(std::int64_t i, float x) { four[i / 4][i % 4] = x; }
};
struct Some {
  bool lane[count];
};

RLALGO_CPU_OPERATION Some within(std::int64_t number, std::int64_t begin, std::int64_t end) {
  Some out;
  for (std::int64_t i = 0; i < count; ++i) out.lane[i] = number + i >= begin && number + i < end;
  return out;
}
RLALGO_CPU_OPERATION Some first(std::int64_t n) { return within(0, 0, n); }

// f(lane) in each of them.
template <class F>
RLALGO_CPU_OPERATION Floats each(const F& f) {
  Floats out;
  for (std::int64_t i = 0; i < count; ++i) out.set(i, f(i));
  return out;
}
// f(four) in each of them.
template <class F>
RLALGO_CPU_OPERATION Floats by_fours(const F& f) {
  Floats out;
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < fours; ++i) out.four[i] = f(i);
  return out;
}

RLALGO_CPU_OPERATION Floats all(float x) {
  return by_fours([&](std::int64_t) { return Four{x, x, x, x}; });
}
RLALGO_CPU_OPERATION Floats zeros() { return all(0.0f); }
template <class T>
RLALGO_CPU_OPERATION float number(const T* p) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(float), float, std::uint16_t>;
  Bits bits;
  std::memcpy(&bits, p, sizeof bits);
  return widen(bits);
}
template <class T>
RLALGO_CPU_OPERATION Floats load(const T* p) {
  Floats out;
  if constexpr (sizeof(T) == sizeof(float)) {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < fours; ++i) std::memcpy(&out.four[i], p + 4 * i, sizeof out.four[i]);
  } else {
    // Eight at once: the bits of a bfloat16 are the upper half of a float's.
    using Bits = std::uint16_t __attribute__((vector_size(16)));
    const Bits zero = {};
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < fours; i += 2) {
      Bits bits;
      std::memcpy(&bits, p + 4 * i, sizeof bits);
      out.four[i] = std::bit_cast<Four>(__builtin_shufflevector(zero, bits, 0, 8, 1, 9, 2, 10, 3, 11));
      out.four[i + 1] = std::bit_cast<Four>(__builtin_shufflevector(zero, bits, 4, 12, 5, 13, 6, 14, 7, 15));
    }
  }
  return out;
}
template <class T>
RLALGO_CPU_OPERATION Floats load(const T* p, const Some& some) {
  return each([&](std::int64_t i) { return some.lane[i] ? number(p + i) : 0.0f; });
}
template <class T>
RLALGO_CPU_OPERATION void store(T* p, const Some& some, const Floats& x) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!some.lane[i]) continue;
    if constexpr (sizeof(T) == sizeof(float)) {
      p[i] = x.lane(i);
    } else {
      const std::uint16_t bits = narrow(x.lane(i));
      std::memcpy(p + i, &bits, sizeof bits);
    }
  }
}
RLALGO_CPU_OPERATION void store(float* p, const Floats& x) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < fours; ++i) std::memcpy(p + 4 * i, &x.four[i], sizeof x.four[i]);
}

RLALGO_CPU_OPERATION Floats operator+(const Floats& x, const Floats& y) {
  return by_fours([&](std::int64_t i) { return x.four[i] + y.four[i]; });
}
RLALGO_CPU_OPERATION Floats operator-(const Floats& x, const Floats& y) {
  return by_fours([&](std::int64_t i) { return x.four[i] - y.four[i]; });
}
RLALGO_CPU_OPERATION Floats operator*(const Floats& x, const Floats& y) {
  return by_fours([&](std::int64_t i) { return x.four[i] * y.four[i]; });
}
RLALGO_CPU_OPERATION Floats operator/(const Floats& x, const Floats& y) {
  return by_fours([&](std::int64_t i) { return x.four[i] / y.four[i]; });
}
RLALGO_CPU_OPERATION Floats product(const Floats& x, const Floats& y) { return x * y; }
RLALGO_CPU_OPERATION float fma(float x, float y, float z) { return RLALGO_CPU_FUSED ? std::fma(x, y, z) : x * y + z; }
RLALGO_CPU_OPERATION float fnma(float x, float y, float z) { return fma(-x, y, z); }
RLALGO_CPU_OPERATION Floats fma(const Floats& x, const Floats& y, const Floats& z) {
  if constexpr (!RLALGO_CPU_FUSED) return x * y + z;
  return each([&](std::int64_t i) { return fma(x.lane(i), y.lane(i), z.lane(i)); });
}
RLALGO_CPU_OPERATION Floats fnma(const Floats& x, const Floats& y, const Floats& z) {
  if constexpr (!RLALGO_CPU_FUSED) return z - x * y;
  return each([&](std::int64_t i) { return fnma(x.lane(i), y.lane(i), z.lane(i)); });
}
RLALGO_CPU_OPERATION Floats fms(const Floats& x, const Floats& y, const Floats& z) {
  if constexpr (!RLALGO_CPU_FUSED) return x * y - z;
  return each([&](std::int64_t i) { return fma(x.lane(i), y.lane(i), -z.lane(i)); });
}
RLALGO_CPU_OPERATION Some other_than(const Floats& x, float y) {
  Some out;
  for (std::int64_t i = 0; i < count; ++i) out.lane[i] = x.lane(i) != y;
  return out;
}
RLALGO_CPU_OPERATION Floats larger(const Floats& x, const Floats& y) {
  return by_fours([&](std::int64_t i) { return x.four[i] > y.four[i] ? x.four[i] : y.four[i]; });
}
RLALGO_CPU_OPERATION Floats smaller(const Floats& x, const Floats& y) {
  return by_fours([&](std::int64_t i) { return x.four[i] < y.four[i] ? x.four[i] : y.four[i]; });
}
RLALGO_CPU_OPERATION Floats pick(const Some& some, const Floats& x, const Floats& y) {
  return each([&](std::int64_t i) { return some.lane[i] ? x.lane(i) : y.lane(i); });
}
RLALGO_CPU_OPERATION Floats keep(const Some& some, const Floats& x) { return pick(some, x, zeros()); }
RLALGO_CPU_OPERATION Floats nearest(const Floats& x) {
  return each([&](std::int64_t i) { return std::nearbyint(x.lane(i)); });
}
RLALGO_CPU_OPERATION Floats scaled_above(const Floats& x, float limit, const Floats& p, const Floats& n) {
  return each([&](std::int64_t i) {
    if (x.lane(i) <= limit) return 0.0f;
    const std::int32_t power = x.lane(i) > limit ? static_cast<std::int32_t>(n.lane(i)) : 0;  // NaN is no whole number
    return count == 16 ? std::ldexp(p.lane(i), power) : p.lane(i) * std::bit_cast<float>((power + 127) << 23);
  });
}

// Halves are added to halves.
RLALGO_CPU_OPERATION float sum(const Floats& x) {
  if constexpr (count == 8) {
    return ((x.lane(0) + x.lane(1)) + (x.lane(2) + x.lane(3))) + ((x.lane(4) + x.lane(5)) + (x.lane(6) + x.lane(7)));
  } else {
    const Four one = (x.four[0] + x.four[2]) + (x.four[1] + x.four[3]);
    return (one[0] + one[2]) + (one[1] + one[3]);
  }
}
RLALGO_CPU_OPERATION float largest(const Floats& x) {
  float out = x.lane(0);
  for (std::int64_t i = 1; i < count; ++i) out = std::max(out, x.lane(i));
  return out;
}

// The sum of a dot product's lanes: of 16 by fours, each as (0 + 2) + (1 + 3), and those pairwise.
RLALGO_CPU_OPERATION float pairwise(const Floats& x) {
  if constexpr (count == 8) return sum(x);
  float four[4];
  for (int i = 0; i < 4; ++i) four[i] = (x.four[i][0] + x.four[i][2]) + (x.four[i][1] + x.four[i][3]);
  return (four[0] + four[1]) + (four[2] + four[3]);
}
template <int Columns, int Rows>
RLALGO_CPU_OPERATION void store_sums(const Floats (&sums)[Rows][Columns], float* y, std::int64_t ldy, bool adds) {
  for (int i = 0; i < Rows; ++i)
    for (int n = 0; n < Columns; ++n) {
      float& to = y[i * ldy + n];
      to = adds ? to + pairwise(sums[i][n]) : pairwise(sums[i][n]);
    }
}

RLALGO_CPU_OPERATION void transpose(Floats (&rows)[count]) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t n = 0; n < i; ++n) {
      const float other = rows[n].lane(i);
      rows[n].set(i, rows[i].lane(n));
      rows[i].set(n, other);
    }
}
RLALGO_CPU_OPERATION void load_columns(Floats (&r)[4], const float* w, std::int64_t ld) {
  for (std::int64_t j = 0; j < 4; ++j) r[j] = each([&](std::int64_t n) { return w[n * ld + j]; });
}

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
