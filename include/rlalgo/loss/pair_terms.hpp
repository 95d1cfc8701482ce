// The vocabulary of pairwise preference losses: the numbers of a pair, and what an objective over them is.
//
//   π_w, π_l   log-probs of the chosen and the rejected completion: Σ over completion tokens
//   ρ_w, ρ_l   the same under the reference
//   r = π − ρ  log-ratio;   s = f(r)  its score under the divergence (loss/divergence.hpp; reverse KL: s = r)
//   δ = s_w − s_l,  x = β·δ
//   value of a step = Σ over pairs of objective(terms) / number of pairs
//
// Shapes: [P] pairs, f64 whatever the model computes in; nats. Rows 2i and 2i+1 of Scored are chosen and rejected.
// Errors: [rlalgo.loss.10] no reference log-probs where the loss needs them; [.11] an odd number of rows.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/masked.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::loss {

struct PairTerms {
  Tensor chosen, rejected;                      // [P] π_w, π_l with graph
  Tensor reference_chosen, reference_rejected;  // [P] ρ_w, ρ_l; undefined for losses without reference
  Tensor chosen_score, rejected_score;          // [P] s_w, s_l with graph; undefined without reference
  Tensor chosen_length, rejected_length;        // [P] completion tokens, at least 1
  Tensor likelihood;  // [P] −Σ log-probs of the pair's likelihood tokens, times pairs / likelihood tokens of the step:
                      // its mean over the pairs is the mean over the tokens
  double beta = 0.1;

  [[nodiscard]] Tensor chosen_ratio() const { return chosen.sub(reference_chosen); }          // [P] r_w
  [[nodiscard]] Tensor rejected_ratio() const { return rejected.sub(reference_rejected); }    // [P] r_l
  [[nodiscard]] Tensor margin() const { return chosen_score.sub(rejected_score).mul(beta); }  // [P] x
};

// The loss of each pair [P], to be minimised.
//   uses_scores   reads the scores s, so that a divergence other than reverse KL has a meaning
//   per_pair      the value of a pair depends on that pair only, so that pairs can be weighted
template <class T>
concept PairObjective = requires(const T& objective, const PairTerms& terms) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { T::uses_scores } -> std::convertible_to<bool>;
  { T::per_pair } -> std::convertible_to<bool>;
  { objective(terms) } -> std::same_as<Tensor>;
};

namespace detail {

// log σ(z), without overflow at either end.
inline Tensor log_logistic(const Tensor& z) { return tensor::log_sigmoid(z); }

// Every second value of a column over rows [2P] → [P].
inline Tensor of_chosen(const Tensor& rows) { return rows.view({-1, 2}).select(1, 0); }
inline Tensor of_rejected(const Tensor& rows) { return rows.view({-1, 2}).select(1, 1); }

// Σ over the completion tokens of each row [R] in f64. With `tail` = α (LD-DPO), the tokens of a completion beyond the
// length of the shorter one of its pair count α.
inline Tensor row_log_prob(const Tensor& log_prob, const Scored& s, const std::optional<double>& tail) {
  const std::int64_t rows = s.row_length.size(0);
  Tensor values = tensor::masked(log_prob.to(at::kDouble), s.mask);  // [N]
  if (tail) {
    const Tensor lengths = s.row_length.to(at::kDouble);
    const Tensor shorter = std::get<0>(lengths.view({-1, 2}).min(1)).repeat_interleave(2);                 // [R]
    const Tensor ends = lengths.cumsum(0);                                                                 // [R]
    const Tensor number = s.mask.to(at::kDouble).cumsum(0).sub(tensor::spread(ends.sub(lengths), s.row));  // [N] from 1
    values = values.mul(number.gt(tensor::spread(shorter, s.row)).to(at::kDouble).mul(*tail - 1.0).add(1.0));
  }
  return tensor::row_sum(values, s.row, rows);
}

// Reference log-probs of the rows [R], from tokens or as they were summed before.
inline Tensor reference_row_log_prob(const Scored& s, const std::optional<double>& tail) {
  if (s.reference_row_log_prob.defined()) return s.reference_row_log_prob.to(at::kDouble);
  if (!s.reference_log_prob.defined())
    core::raise("loss", 10,
                {.what = "the batch has no reference log-probs, and the loss compares with a reference",
                 .remedy = "give the trainer a reference, or rows with precomputed reference log-probs"});
  return row_log_prob(s.reference_log_prob, s, tail);
}

inline void require_pairs(const Scored& s) {
  if (s.row_length.size(0) % 2 != 0)
    core::raise("loss", 11,
                {.what = "a pairwise loss got an odd number of rows",
                 .found = std::to_string(s.row_length.size(0)),
                 .expected = "chosen and rejected in turn"});
}

// −Σ over the likelihood tokens of each row [R], scaled as PairTerms::likelihood says. `rows_per_unit`: 2 for pairs.
inline Tensor likelihood_of_rows(const Scored& s, const Counts& counts) {
  const Tensor values = tensor::masked(s.log_prob.to(at::kDouble), s.likelihood_mask);
  const double pairs = counts.rows / 2.0;
  return tensor::row_sum(values, s.row, s.row_length.size(0)).mul(-pairs / std::max(counts.likelihood_tokens, 1.0));
}

}  // namespace detail

// The terms of a batch of pairs. Scores are left to the caller.
[[nodiscard]] inline PairTerms make_pair_terms(const Scored& s, const Counts& counts, double beta, bool reference,
                                               const std::optional<double>& tail = std::nullopt) {
  detail::require_pairs(s);
  PairTerms terms;
  terms.beta = beta;
  const Tensor rows = detail::row_log_prob(s.log_prob, s, tail);
  terms.chosen = detail::of_chosen(rows);
  terms.rejected = detail::of_rejected(rows);
  const Tensor lengths = s.row_length.to(at::kDouble).clamp_min(1.0);
  terms.chosen_length = detail::of_chosen(lengths);
  terms.rejected_length = detail::of_rejected(lengths);
  if (s.likelihood_mask.defined()) terms.likelihood = detail::of_chosen(detail::likelihood_of_rows(s, counts));
  if (reference) {
    const Tensor reference_rows = detail::reference_row_log_prob(s, tail);
    terms.reference_chosen = detail::of_chosen(reference_rows);
    terms.reference_rejected = detail::of_rejected(reference_rows);
  }
  return terms;
}

}  // namespace rlalgo::loss
