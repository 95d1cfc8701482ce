// A body (instruction_set.hpp): rows of a block of attention scores, what lies between two products.
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET::rows {

// The running softmax of a query: Σ exp(s_j − top) over the keys so far.
struct Running {
  float top, sum;
};

// What scores become before softmax: scale·s, or, with a cap c, c·tanh(scale·s/c).
struct ScoreMap {
  float scale, cap;  // cap 0: none
};

// tanh(scale·s/c)
[[nodiscard]] RLALGO_CPU_OPERATION Floats bent(Floats s, const ScoreMap& map) {
  return tanh(s * all(map.scale / map.cap));
}

// p[j] = exp(score[j] − top) of the keys [begin, end) of a row of `width`, 0 for the others, with the largest score so far as top.
// Returns exp(top before − top), by which what was summed before is to be multiplied.
template <class T, bool capped>
inline float weigh(const float* s, std::int64_t begin, std::int64_t end, std::int64_t width, const ScoreMap& map,
                   Running& run, T* p) {
  const Floats lowest = all(-INFINITY), factor = all(map.scale), cap = all(map.cap);
  Floats top = lowest;
  for (std::int64_t j = begin / count * count; j < end; j += count) {
    const Some seen = within(j, begin, end);
    const Floats raw = load(s + j, seen);
    const Floats score = capped ? cap * bent(raw, map) : raw * factor;
    top = pick(seen, larger(top, score), top);
  }
  const float before = run.top;
  run.top = std::max(before, largest(top));
  const Floats shift = all(run.top);
  Floats total = zeros();
  for (std::int64_t j = 0; j < width; j += count) {
    const Some seen = within(j, begin, end);
    const Floats raw = load(s + j, seen);
    const Floats weight = exp(capped ? fms(cap, bent(raw, map), shift) : fms(raw, factor, shift));
    const Floats kept = keep(seen, weight);
    total = total + kept;
    store(p + j, first(width - j), kept);
  }
  const float change = before == run.top ? 1.0f : std::exp(before - run.top);
  run.sum = fma(run.sum, change, sum(total));
  return change;
}

// p[j] = exp(score[j] − log_sum) and d[j] = p[j]·(g[j] − along)·∂score/∂s of the keys [begin, end), 0 for the others.
template <class T, bool capped>
inline void differentiate(const float* s, const float* g, std::int64_t begin, std::int64_t end, std::int64_t width,
                          const ScoreMap& map, float log_sum, float along, T* p, T* d) {
  const Floats factor = all(map.scale), shift = all(log_sum), mean = all(along), cap = all(map.cap), one = all(1.0f);
  for (std::int64_t j = 0; j < width; j += count) {
    const Some seen = within(j, begin, end), some = first(width - j);
    const Floats raw = load(s + j, seen);
    Floats score = zeros(), slope = factor;
    if constexpr (capped) {
      const Floats t = bent(raw, map);
      score = fms(cap, t, shift);
      slope = factor * fnma(t, t, one);
    } else {
      score = fms(raw, factor, shift);
    }
    const Floats weight = keep(seen, exp(score));
    const Floats pull = weight * (load(g + j, seen) - mean) * slope;
    store(p + j, some, weight);
    store(d + j, some, keep(seen, pull));
  }
}

// Σ a[j]·b[j]
template <class T>
[[nodiscard]] inline float dot(const T* a, const T* b, std::int64_t n) {
  Floats total = zeros();
  for (std::int64_t j = 0; j < n; j += count) {
    const Some some = first(n - j);
    total = fma(load(a + j, some), load(b + j, some), total);
  }
  return sum(total);
}

// x[j] ← factor·x[j]
inline void multiply(float* x, float factor, std::int64_t n) {
  const Floats f = all(factor);
  for (std::int64_t j = 0; j < n; j += count) {
    const Some some = first(n - j);
    store(x + j, some, load(x + j, some) * f);
  }
}

// out[j] = factor·x[j], or that more than it held
template <class T>
inline void put(const float* x, float factor, bool adds, T* out, std::int64_t n) {
  const Floats f = all(factor);
  for (std::int64_t j = 0; j < n; j += count) {
    const Some some = first(n - j);
    const Floats value = load(x + j, some);
    store(out + j, some, adds ? fma(value, f, load(out + j, some)) : value * f);
  }
}

// out[j] = x[j], or the sum of both
template <class T>
inline void take(const T* x, bool adds, float* out, std::int64_t n) {
  for (std::int64_t j = 0; j < n; j += count) {
    const Some some = first(n - j);
    const Floats value = load(x + j, some);
    store(out + j, some, adds ? value + load(out + j, some) : value);
  }
}

}  // namespace rlalgo::cpu::RLALGO_CPU_SET::rows

#endif
