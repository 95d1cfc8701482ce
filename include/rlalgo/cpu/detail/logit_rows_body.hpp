// A body (instruction_set.hpp): blocks of logits, whose lanes are tokens.
#ifdef RLALGO_CPU_SET

namespace rlalgo::cpu::RLALGO_CPU_SET::logit_rows {

// Products w·h of words and tokens: word v's are at data[v · stride].
struct Block {
  const float* data;
  std::int64_t stride, words, tokens;
  const float* bias;  // of its words, over T; or null
  float inverse;      // 1/T

  [[nodiscard, gnu::always_inline]] Floats logit(std::int64_t v, std::int64_t n, Some some) const {
    const Floats shift = all(bias == nullptr ? 0.0f : bias[v]);
    return fma(load(data + v * stride + n, some), all(inverse), shift);
  }
};

// The running sums of each token: top = max l, sum = Σ exp(l − top), moment = Σ exp(l − top)(l − top), null where nobody asks.
template <bool Moment>
inline void reduce(const Block& block, float* top, float* sum, float* moment) {
  for (std::int64_t n = 0; n < block.tokens; n += count) {
    const Some some = first(block.tokens - n);
    const Floats before = load(top + n, some);
    Floats peak = before;
    for (std::int64_t v = 0; v < block.words; ++v) peak = keep(some, larger(peak, block.logit(v, n, some)));
    // Of a token without words so far the sums are 0, and stay so.
    const Floats shift = keep(other_than(before, -INFINITY), before - peak), factor = exp(shift);
    const Floats old = load(sum + n, some);
    Floats z = product(old, factor), e = zeros();
    if constexpr (Moment) e = fma(shift, old, load(moment + n, some)) * factor;
    for (std::int64_t v = 0; v < block.words; ++v) {
      const Floats below = block.logit(v, n, some) - peak, power = exp(below);
      z = z + power;
      if constexpr (Moment) e = fma(power, below, e);
    }
    store(top + n, some, peak);
    store(sum + n, some, z);
    if constexpr (Moment) store(moment + n, some, e);
  }
}

// out[v · stride + n] = ∂/∂l as if v were the target of no token: −g p − e p (log p + entropy).
template <bool Entropy, class Bfloat16>
inline void differentiate(const Block& block, const LogitTokens& tokens, Bfloat16* out, std::int64_t stride) {
  for (std::int64_t n = 0; n < block.tokens; n += count) {
    const Some some = first(block.tokens - n);
    const Floats log_sum = load(tokens.log_sum + n, some);
    const Floats g = zeros() - load(tokens.of_log_prob + n, some);
    Floats s = zeros(), entropy = s;
    if constexpr (Entropy) {
      s = load(tokens.of_entropy + n, some);
      entropy = load(tokens.entropy + n, some);
    }
    for (std::int64_t v = 0; v < block.words; ++v) {
      const Floats log_p = block.logit(v, n, some) - log_sum;
      Floats factor = g;
      if constexpr (Entropy) factor = fnma(s, log_p + entropy, g);
      store(out + v * stride + n, some, factor * exp(log_p));
    }
  }
}

// Σ x[j]
template <class Bfloat16>
[[nodiscard]] inline float total(const Bfloat16* x, std::int64_t n) {
  Floats all_of = zeros();
  for (std::int64_t j = 0; j < n; j += count) all_of = all_of + load(x + j, first(n - j));
  return sum(all_of);
}

}  // namespace rlalgo::cpu::RLALGO_CPU_SET::logit_rows

#endif
