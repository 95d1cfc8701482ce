// The negative log-likelihood of given completions: next-token training.
//
//   loss = −Σ_{i,t} x m / max(M, 1),   M = Σ m over all micro-batches and ranks of the step
//
// Shapes: Scored [N] tokens → scalar, nats per token. Reads log-probs only; rows are samples of a dataset.
// Metric: entropy, the mean over the loss tokens of the batch, nats (where the scorer computed it).
#pragma once

#include <algorithm>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/tensor/masked.hpp>

namespace rlalgo::loss {

struct CrossEntropy {
  struct Config {};
  static constexpr Needs needs{};
  static constexpr RowKind rows = RowKind::samples;

  CrossEntropy() = default;
  explicit CrossEntropy(Config) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    Result result;
    result.value = tensor::masked(scored.log_prob, scored.mask).sum().div(-std::max(counts.tokens, 1.0));
    if (scored.entropy.defined())
      result.metrics.mean("entropy", tensor::masked(scored.entropy.detach(), scored.mask).sum(), scored.mask.sum());
    return result;
  }
};

}  // namespace rlalgo::loss
