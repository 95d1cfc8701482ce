// A body (instruction_set.hpp): the kernels over one row: sums, and what is done with each element.
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET {

inline MaxResult maximum(const float* x, std::int64_t n) {
  const Floats lowest = all(-std::numeric_limits<float>::infinity());
  Floats top[2] = {lowest, lowest}, zero[2] = {zeros(), zeros()};  // Σ 0·x: NaN as soon as one x is not finite
  std::int64_t j = 0;
  for (; j + 2 * count <= n; j += 2 * count)
    for (int i = 0; i < 2; ++i) {
      const Floats v = load(x + j + i * count);
      top[i] = larger(top[i], v);
      zero[i] = fma(v, zeros(), zero[i]);
    }
  for (; j < n; j += count) {
    const Some some = first(n - j);
    const Floats v = load(x + j, some);
    top[0] = larger(top[0], pick(some, v, lowest));
    zero[0] = fma(v, zeros(), zero[0]);
  }
  return {largest(larger(top[0], top[1])), sum(zero[0] + zero[1]) == 0.0f};
}

inline float exp_sum(const float* x, float shift, float scale, float* out, std::int64_t n) {
  const Floats s = all(shift), f = all(scale);
  Floats total[2] = {zeros(), zeros()};
  std::int64_t j = 0;
  for (; j + 2 * count <= n; j += 2 * count)
    for (int i = 0; i < 2; ++i) {
      const Floats e = exp((load(x + j + i * count) - s) * f);
      if (out != nullptr) store(out + j + i * count, e);
      total[i] = total[i] + e;
    }
  // What is left of eight lanes is added to the first sum, of sixteen to either.
  for (int i = 0; j < n; j += count, i += count / 16) {
    const Some some = first(n - j);
    const Floats e = keep(some, exp((load(x + j, some) - s) * f));
    if (out != nullptr) store(out + j, some, e);
    total[i] = total[i] + e;
  }
  return sum(total[0] + total[1]);
}

inline void rms_norm(const float* x, const float* weight, float eps, float* out, std::int64_t n) {
  Floats square[2] = {zeros(), zeros()};
  std::int64_t j = 0;
  for (; j + 2 * count <= n; j += 2 * count)
    for (int i = 0; i < 2; ++i) {
      const Floats v = load(x + j + i * count);
      square[i] = fma(v, v, square[i]);
    }
  for (; j < n; j += count) {
    const Floats v = load(x + j, first(n - j));
    square[0] = fma(v, v, square[0]);
  }
  const float mean = sum(square[0] + square[1]) / static_cast<float>(n);
  const Floats inverse = all(1.0f / std::sqrt(mean + eps));
  for (j = 0; j + count <= n; j += count) store(out + j, load(weight + j) * (load(x + j) * inverse));
  if (j == n) return;
  const Some some = first(n - j);
  store(out + j, some, load(weight + j, some) * (load(x + j, some) * inverse));
}

// gate·σ(a)·up with a = gate, or that of gelu by tanh: (1 + tanh y)/2 = σ(2y)
template <bool gelu, class... Lanes>
RLALGO_CPU_OPERATION void gated_multiply_at(float* gate, const float* up, Lanes... some) {
  const Floats x = load(gate, some...);
  Floats a = x;
  if constexpr (gelu) a = x * fma(x * x, all(gelu_cube), all(gelu_root));
  store(gate, some..., x / (all(1.0f) + exp(zeros() - a)) * load(up, some...));
}

template <bool gelu>
inline void gated_multiply(float* gate, const float* up, std::int64_t n) {
  std::int64_t j = 0;
  for (; j + count <= n; j += count) gated_multiply_at<gelu>(gate + j, up + j);
  if (j < n) gated_multiply_at<gelu>(gate + j, up + j, first(n - j));
}

inline void add(float* x, const float* y, std::int64_t n) {
  std::int64_t j = 0;
  for (; j + count <= n; j += count) store(x + j, load(x + j) + load(y + j));
  for (; j < n; ++j) x[j] += y[j];
}

// With products that are rounded: the same bits in every set.
template <class... Lanes>
RLALGO_CPU_OPERATION void rotate_at(float* x, float* y, const float* cosines, const float* sines, Lanes... some) {
  const Floats a = load(x, some...), b = load(y, some...), c = load(cosines, some...), s = load(sines, some...);
  store(x, some..., product(a, c) - product(b, s));
  store(y, some..., product(b, c) + product(a, s));
}

inline void rotate(float* x, float* y, const float* cosines, const float* sines, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + count <= n; i += count) rotate_at(x + i, y + i, cosines + i, sines + i);
  if (i < n) rotate_at(x + i, y + i, cosines + i, sines + i, first(n - i));
}

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
