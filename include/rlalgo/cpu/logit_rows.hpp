// Blocks of logits with sixteen lanes (lanes.hpp), which are tokens: their sums and gradients, which lie between two products of the
// log-prob head for bfloat16. detail/logit_rows_body.hpp has the functions, in lanes::logit_rows.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::cpu {

// What a token brings to its gradients; `of_entropy` and `entropy` are null where nobody asks.
struct LogitTokens {
  const float* log_sum;
  const float* of_log_prob;  // g/T
  const float* of_entropy;   // e/T
  const float* entropy;

  [[nodiscard]] LogitTokens from(std::int64_t n) const {
    return {log_sum + n, of_log_prob + n, of_entropy == nullptr ? nullptr : of_entropy + n,
            entropy == nullptr ? nullptr : entropy + n};
  }
  // ∂/∂l of the target, of log-probability `log_prob`, of token n.
  [[nodiscard]] float of_target(std::int64_t n, float log_prob) const {
    const float p = std::exp(log_prob), own = of_log_prob[n] * (1.0f - p);
    return of_entropy == nullptr ? own : own - of_entropy[n] * p * (log_prob + entropy[n]);
  }
};

}  // namespace rlalgo::cpu

#if defined(__x86_64__)

#define RLALGO_CPU_SET lanes
RLALGO_CPU_BEGIN("avx2,fma,avx512f,avx512bw,avx512vl")
#include <rlalgo/cpu/detail/logit_rows_body.hpp>
RLALGO_CPU_END
#undef RLALGO_CPU_SET

#endif
