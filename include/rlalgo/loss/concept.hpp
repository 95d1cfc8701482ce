// What a loss is: a pure function from a scored micro-batch to a scalar with gradient, plus named metrics.
//
// The scored batch is flat: N completion tokens, row after row, no padding. A loss sees log-probs as numbers; it knows
// no model. Denominators are `Counts` over the whole optimizer step and all ranks, known before any backward, so that
// the sum of the losses of all micro-batches is the loss of the step whatever the split.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <rlalgo/loss/hooks.hpp>
#include <rlalgo/loss/metrics.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::loss {

using tensor::Tensor;

// What rows mean; a sampler's rows and a loss's rows must be the same kind. The three below are ours; a kind of your own
// is another constant: `inline constexpr loss::RowKind blocks{"strided_blocks"};`.
struct RowKind {
  char name[32] = {};
  std::size_t unit = 1;  // rows in turn that make one example; micro-batches hold whole examples

  static const RowKind samples;   // completions with one advantage each
  static const RowKind pairs;     // rows 2i and 2i+1 are chosen and rejected
  static const RowKind unpaired;  // answers with a label each
  friend constexpr bool operator==(const RowKind&, const RowKind&) = default;
};
inline constexpr RowKind RowKind::samples{"samples"};
inline constexpr RowKind RowKind::pairs{"pairs", 2};
inline constexpr RowKind RowKind::unpaired{"unpaired"};

// Columns of `Scored` beyond log_prob that a loss reads; the trainer computes nothing that is not needed.
struct Needs {
  bool old_log_prob = false;        // of the policy that generated the rows
  bool reference_log_prob = false;  // of a frozen reference
  bool sampling_log_prob = false;   // as the generator reported them
  bool entropy = false;             // with gradient
  // Of losses over preference data:
  bool prompt_likelihood = false;  // log-probs of the prompt tokens of chosen rows (Scored::likelihood_mask)
  bool token_statistics = false;   // mean_logit and greedy
  bool collision = false;          // log Σ_v p_v²
  bool mismatched = false;         // log-ratios of mismatched completions (Counts::mismatched_log_ratio)
  // Of losses over completions: log-probs of the answers that rows bring (Scored::likelihood_mask).
  bool answer_likelihood = false;
  friend constexpr bool operator==(const Needs&, const Needs&) = default;
  friend constexpr Needs operator|(Needs a, const Needs& b);
};

// Every field of Needs: what is done to all of them is done over this list.
inline constexpr std::array<bool Needs::*, 9> needs_fields{
    &Needs::old_log_prob, &Needs::reference_log_prob, &Needs::sampling_log_prob,
    &Needs::entropy,      &Needs::prompt_likelihood,  &Needs::token_statistics,
    &Needs::collision,    &Needs::mismatched,         &Needs::answer_likelihood};
static_assert(sizeof(Needs) == needs_fields.size() * sizeof(bool), "a field of loss::Needs is not in needs_fields");

constexpr Needs operator|(Needs a, const Needs& b) {
  for (const auto field : needs_fields) a.*field = a.*field || b.*field;
  return a;
}

struct Scored {
  Tensor log_prob{};      // [N] current policy, with graph, temperature applied
  Tensor entropy{};       // [N] nats; without graph unless Needs::entropy
  Tensor old_log_prob{};  // [N] data; of rows without, log_prob detached. Samplers of one's own may leave it undefined
  Tensor reference_log_prob{};  // [N] data, or undefined
  Tensor sampling_log_prob{};   // [N] data, or undefined
  Tensor mask{};                // [N] 1 = token carries loss, 0 = it does not (same dtype as log_prob)
  Tensor row{};                 // [N] int64: row index of each token
  Tensor row_length{};          // [R] Σ mask of the row (same dtype as log_prob)
  Tensor advantage{};           // [R], or undefined for losses over data

  // [N] 1 = token of the likelihood term: of a chosen (desirable) row, of an answer that a row brings. Undefined where
  // no loss asks for it. Tokens of an answer have mask 0.
  Tensor likelihood_mask{};

  // Preference data only, undefined elsewhere.
  Tensor reference_row_log_prob{};  // [R] data: Σ over the row, in place of reference_log_prob
  Tensor desirable{};               // [R] 1 or 0: chosen rows, or the labels of unpaired data
  Tensor mean_logit{};              // [N] data: mean of the logits over the vocabulary
  Tensor greedy{};                  // [N] data: 1 = the target has the highest logit
  Tensor collision{};               // [N] data: log Σ_v p_v²
};

// Totals over the optimizer step: all micro-batches of all ranks.
struct Counts {
  double rows = 0;                  // R summed
  double tokens = 0;                // Σ mask
  double micro_batches = 0;         // number of parts
  double likelihood_tokens = 0;     // Σ likelihood_mask
  double desirable = 0;             // Σ desirable over rows
  double mismatched_log_ratio = 0;  // Σ over rows of log π/π_ref of mismatched completions
};

// Every field of Counts, in the order in which ranks exchange them.
inline constexpr std::array<double Counts::*, 6> counts_fields{&Counts::rows,          &Counts::tokens,
                                                               &Counts::micro_batches, &Counts::likelihood_tokens,
                                                               &Counts::desirable,     &Counts::mismatched_log_ratio};
static_assert(sizeof(Counts) == counts_fields.size() * sizeof(double),
              "a field of loss::Counts is not in counts_fields");

struct Result {
  Tensor value{};       // [] with gradient; sum over parts = loss of the step
  Metrics metrics{};    // exact under merge
  Tensor margins = {};  // [P] data: reward of chosen − rejected of each pair; undefined where rows are no pairs
};

// `needs` and `rows` are constants: what is computed for a loss is settled when the program is compiled.
template <class L>
concept Loss = requires(const L& loss, const Scored& scored, const Counts& counts) {
  typename std::integral_constant<Needs, L::needs>;
  typename std::integral_constant<RowKind, L::rows>;
  { loss(scored, counts) } -> std::same_as<Result>;
};

// What this loss object reads: its type's needs, or less where the type covers a family (AnyLoss).
template <Loss L>
[[nodiscard]] Needs active_needs(const L& loss) {
  if constexpr (hooks_of<L>().active_needs)
    return loss.active_needs();
  else
    return L::needs;
}

// Whether the loss weighs rows by how the trainer's log-probs differ from those of the generator (SamplingCorrection).
// Then old log-probs are of the policy as it is when the rows are trained on, whichever weights drew them.
template <Loss L>
[[nodiscard]] bool corrects_sampling(const L& loss) {
  if constexpr (hooks_of<L>().corrects_sampling)
    return loss.corrects_sampling();
  else
    return false;
}

}  // namespace rlalgo::loss
