// Rollouts → what the model scores and what the loss reads: the seam between host data and tensors.
//
//   sequences(rows)          → prompt and completion views, for model::build_tree
//   collate(rows, log_probs) → loss::Scored: flat [N] columns, row after row, no padding
//
// Old log-probs: a row that was generated with the current weights has none yet; its old log-prob is the detached
// current one (ratio exactly 1, with gradient), and `remember_old` stores it for later iterations over the same
// generation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::trainer {

using tensor::Tensor;

using Rows = std::span<data::Rollout* const>;

// Prompt and completion tokens of a row.
[[nodiscard]] inline std::int64_t token_count(const data::Rollout& r) {
  return static_cast<std::int64_t>(r.prompt_ids.size() + r.completion_ids.size());
}

[[nodiscard]] inline std::vector<model::Sequence> sequences(Rows rows, const loss::Needs& /*needs*/ = {}) {
  std::vector<model::Sequence> out;
  out.reserve(rows.size());
  for (const data::Rollout* r : rows) out.push_back({r->prompt_ids, r->completion_ids});
  return out;
}

// Completion tokens of a row that carry loss.
[[nodiscard]] inline std::int64_t loss_tokens(const data::Rollout& r) {
  if (r.loss_mask.empty()) return static_cast<std::int64_t>(r.completion_ids.size());
  std::int64_t count = 0;
  for (const std::uint8_t m : r.loss_mask) count += m != 0;
  return count;
}

// This rank's contribution to the counts of the optimizer step.
[[nodiscard]] inline loss::Counts count(std::span<const std::vector<data::Rollout*>> parts,
                                        const loss::Needs& /*needs*/ = {}) {
  loss::Counts counts;
  for (const auto& part : parts) {
    counts.micro_batches += 1;
    counts.rows += static_cast<double>(part.size());
    for (const data::Rollout* r : part) counts.tokens += static_cast<double>(loss_tokens(*r));
  }
  return counts;
}

namespace detail {

// Concatenates one float column of all rows; undefined when a row lacks it.
template <class Column>
[[nodiscard]] Tensor concatenate(Rows rows, Column column, std::int64_t total, const Tensor& like) {
  std::vector<double> flat;
  flat.reserve(static_cast<std::size_t>(total));
  for (const data::Rollout* r : rows) {
    const std::vector<float>& values = column(*r);
    if (values.size() != r->completion_ids.size()) return {};
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return tensor::from_values(flat, like.options().requires_grad(false));  // [N]
}

[[nodiscard]] inline std::vector<float> slice_floats(const Tensor& column, std::int64_t begin, std::int64_t length) {
  const Tensor part = column.detach().slice(0, begin, begin + length).to(at::kCPU, at::kFloat).contiguous();
  const float* p = part.const_data_ptr<float>();
  return {p, p + length};
}

}  // namespace detail

// Builds the loss's view of one micro-batch. `scores` comes from the policy for the tree of `sequences(rows)`.
[[nodiscard]] inline loss::Scored collate(Rows rows, const model::Scores& scores, loss::Needs needs) {
  const std::int64_t total = scores.log_prob.numel();
  const auto options = scores.log_prob.options().requires_grad(false);
  std::vector<double> mask, lengths, advantages;
  std::vector<std::int64_t> row;
  mask.reserve(static_cast<std::size_t>(total));
  row.reserve(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const data::Rollout& r = *rows[i];
    for (std::size_t t = 0; t < r.completion_ids.size(); ++t) {
      mask.push_back(r.loss_mask.empty() || r.loss_mask[t] != 0 ? 1.0 : 0.0);
      row.push_back(static_cast<std::int64_t>(i));
    }
    lengths.push_back(static_cast<double>(loss_tokens(r)));
    advantages.push_back(r.advantage);
  }
  loss::Scored scored;
  scored.log_prob = scores.log_prob;                                // [N]
  scored.entropy = scores.entropy;                                  // [N]
  scored.mask = tensor::from_values(mask, options);                 // [N]
  scored.row = tensor::from_values(row, options.dtype(at::kLong));  // [N]
  scored.row_length = tensor::from_values(lengths, options);        // [R]
  scored.advantage = tensor::from_values(advantages, options);      // [R]
  if (needs.old_log_prob)
    scored.old_log_prob = detail::concatenate(
        rows, [](const data::Rollout& r) -> auto& { return r.old_log_probs; }, total, scored.log_prob);
  if (needs.reference_log_prob)
    scored.reference_log_prob = detail::concatenate(
        rows, [](const data::Rollout& r) -> auto& { return r.reference_log_probs; }, total, scored.log_prob);
  if (needs.sampling_log_prob)
    scored.sampling_log_prob = detail::concatenate(
        rows, [](const data::Rollout& r) -> auto& { return r.sampling_log_probs; }, total, scored.log_prob);
  return scored;
}

// Writes log_prob [N] back into one float column of the rows.
template <class Column>
void store(Rows rows, const Tensor& log_prob, Column column) {
  std::int64_t begin = 0;
  for (data::Rollout* r : rows) {
    const auto length = static_cast<std::int64_t>(r->completion_ids.size());
    column(*r) = detail::slice_floats(log_prob, begin, length);
    begin += length;
  }
}

// Rows that have no old log-probs yet were generated with the current weights: what they were scored with is their old
// log-prob for later iterations over the same generation.
inline void remember_old(Rows rows, const Tensor& log_prob) {
  std::int64_t begin = 0;
  for (data::Rollout* r : rows) {
    const auto length = static_cast<std::int64_t>(r->completion_ids.size());
    if (r->old_log_probs.empty()) r->old_log_probs = detail::slice_floats(log_prob, begin, length);
    begin += length;
  }
}

}  // namespace rlalgo::trainer
