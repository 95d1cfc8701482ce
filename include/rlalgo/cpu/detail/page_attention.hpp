// A body (instruction_set.hpp): attention over pages of float32. The set says how many heads it takes at a time, `most_heads`, and whose sums
// weigh the scores, `eight`: a set of eight lanes, so that sets of more have its bits.
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET {

// One page of raw scores for `Heads` heads: every lane is a position. Fetches two other blocks of [d, page_positions] meanwhile.
template <int Heads>
RLALGO_CPU_OPERATION void page_scores(const float* q, std::int64_t ldq, const float* keys, std::int64_t d,
                                      float* scores, std::int64_t lds, const float* soon, const float* later,
                                      std::int64_t later_bytes) {
  constexpr int width = page_positions / count;
  Floats score[Heads][width];
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < width; ++c) score[h][c] = zeros();
  for (std::int64_t j = 0; j < d; ++j, keys += page_positions) {
    prefetch<key_row_bytes / cache_line>(reinterpret_cast<const char*>(soon + j * page_positions));
    if (j * key_row_bytes < later_bytes)
      prefetch<key_row_bytes / cache_line>(reinterpret_cast<const char*>(later + j * page_positions));
    Floats x[Heads];
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) x[h] = all(q[h * ldq + j]);
#pragma GCC unroll 4
    for (int c = 0; c < width; ++c) {
      const Floats key = load(keys + c * count);
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) score[h][c] = fma(x[h], key, score[h][c]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < width; ++c) store(scores + h * lds + c * count, score[h][c]);
}

// out[h, :Width·count] = Σ_t weight[h, t] · value[t, :Width·count], scaled by inverse[h]. Fetches a block of [d, page_positions] meanwhile.
template <int Heads, int Width>
RLALGO_CPU_OPERATION void mix_values(const AttentionArgs& a, const float* weights, std::int64_t ldw,
                                     const float* inverse, std::int64_t column, float* out, const float* next) {
  Floats mixed[Heads][Width];
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < Width; ++c) mixed[h][c] = zeros();
  for (std::int64_t begin = 0; begin < a.length; begin += page_positions) {
    const float* value = floats(a.pages[begin / page_positions], a.value_offset) + column;
    const std::int64_t positions = std::min(page_positions, a.length - begin);
    for (std::int64_t t = 0; t < positions; ++t, value += a.d) {
      if (next != nullptr && begin == 0)
        for (std::int64_t j = 0; j < a.d; j += cache_line / static_cast<std::int64_t>(sizeof(float)))
          prefetch<1>(reinterpret_cast<const char*>(next + t * a.d + j));
      Floats weight[Heads];
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) weight[h] = all(weights[h * ldw + begin + t]);
#pragma GCC unroll 4
      for (int c = 0; c < Width; ++c) {
        const Floats v = load(value + c * count);
#pragma GCC unroll 4
        for (int h = 0; h < Heads; ++h) mixed[h][c] = fma(weight[h], v, mixed[h][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < Width; ++c) store(out + h * a.ldo + column + c * count, mixed[h][c] * all(inverse[h]));
}

// What the sink of a head adds to Σ exp((s − shift)·scale).
inline float of_sink(const AttentionArgs& a, std::int64_t head, float shift, float scale) {
  return a.sinks == nullptr ? 0.0f : std::exp(fnma(shift, scale, a.sinks[head]));
}

// Scores of one head become weights; what their sum is to be divided by, inverted.
inline float weigh(const AttentionArgs& a, std::int64_t head, float* scores) {
  std::fill_n(scores, a.first, -std::numeric_limits<float>::infinity());  // becomes a weight of 0
  const float scale = bend_scores(a, scores), shift = maximum(scores, a.length).max;
  return 1.0f / (exp_sum(scores, shift, scale, scores, a.length) + of_sink(a, head, shift, scale));
}

template <int Heads>
inline void attend(const AttentionArgs& a, std::int64_t head) {
  const std::int64_t pages = (a.length + page_positions - 1) / page_positions, lds = pages * page_positions;
  for (std::int64_t p = 0; p < pages; ++p)
    page_scores<Heads>(a.q + head * a.ldq, a.ldq, floats(a.pages[p], a.key_offset), a.d, a.scores + p * page_positions,
                       lds, floats(a.pages[std::min(p + 1, pages - 1)], a.key_offset),
                       floats(a.pages[p], a.value_offset), bytes_of_values(a, p, sizeof(float)));
  float inverse[Heads];
  for (int h = 0; h < Heads; ++h) inverse[h] = eight::weigh(a, head + h, a.scores + h * lds);
  float* const out = a.out + head * a.ldo;
  std::int64_t column = 0;
  const auto next = [&] { return head + Heads == a.group && column == 0 ? floats(a.next, 0) : nullptr; };
  for (; column + 4 * count <= a.d; column += 4 * count)
    mix_values<Heads, 4>(a, a.scores, lds, inverse, column, out, next());
  for (; column + count <= a.d; column += count) mix_values<Heads, 1>(a, a.scores, lds, inverse, column, out, next());
  if (column < a.d) eight::mix_values<Heads, 1>(a, a.scores, lds, inverse, column, out, next());
}

// The heads from `head` on, `Heads` of them at a time and then what is left.
template <int Heads>
inline void attend_from(const AttentionArgs& a, std::int64_t head) {
  for (; head + Heads <= a.group; head += Heads) attend<Heads>(a, head);
  if constexpr (Heads > 1)
    if (head < a.group) attend_from<Heads - 1>(a, head);
}

inline void attention(const AttentionArgs& a) { attend_from<most_heads>(a, 0); }

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
