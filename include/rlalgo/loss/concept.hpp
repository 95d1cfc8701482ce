// What a loss is: a pure function from a scored micro-batch to a scalar with gradient, plus named metrics.
//
// The scored batch is flat: N completion tokens, row after row, no padding. A loss sees log-probs as numbers; it knows
// no model. Denominators are `Counts` over the whole optimizer step and all ranks, known before any backward, so that
// the sum of the losses of all micro-batches is the loss of the step whatever the split.
#pragma once

#include <concepts>
#include <cstdint>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::loss {

using tensor::Tensor;

// What rows mean. A sampler's rows and a loss's rows must be the same kind.
enum class RowKind { samples, pairs, unpaired };  // pairs: rows 2i and 2i+1 are chosen and rejected

// Columns of `Scored` beyond log_prob that a loss reads; the trainer computes nothing that is not needed.
struct Needs {
  bool old_log_prob = false;        // of the policy that generated the rows
  bool reference_log_prob = false;  // of a frozen reference
  bool sampling_log_prob = false;   // as the generator reported them
  bool entropy = false;             // with gradient
  friend constexpr bool operator==(const Needs&, const Needs&) = default;
  friend constexpr Needs operator|(const Needs& a, const Needs& b) {
    return {.old_log_prob = a.old_log_prob || b.old_log_prob,
            .reference_log_prob = a.reference_log_prob || b.reference_log_prob,
            .sampling_log_prob = a.sampling_log_prob || b.sampling_log_prob,
            .entropy = a.entropy || b.entropy};
  }
};

struct Scored {
  Tensor log_prob;            // [N] current policy, with graph, temperature applied
  Tensor entropy;             // [N] nats; without graph unless Needs::entropy
  Tensor old_log_prob;        // [N] data, or undefined
  Tensor reference_log_prob;  // [N] data, or undefined
  Tensor sampling_log_prob;   // [N] data, or undefined
  Tensor mask;                // [N] 1 = token carries loss, 0 = it does not (same dtype as log_prob)
  Tensor row;                 // [N] int64: row index of each token
  Tensor row_length;          // [R] Σ mask of the row (same dtype as log_prob)
  Tensor advantage;           // [R], or undefined for losses over data
};

// Totals over the optimizer step: all micro-batches of all ranks.
struct Counts {
  double rows = 0;           // R summed
  double tokens = 0;         // Σ mask
  double micro_batches = 0;  // number of parts
};

struct Result {
  Tensor value;           // [] with gradient; sum over parts = loss of the step
  core::Metrics metrics;  // exact under merge
};

template <class L>
concept Loss = requires(const L& loss, const Scored& scored, const Counts& counts) {
  typename L::Config;
  { L::needs } -> std::convertible_to<Needs>;
  { L::rows } -> std::convertible_to<RowKind>;
  { loss(scored, counts) } -> std::same_as<Result>;
};

}  // namespace rlalgo::loss
