// Rows of online RL: data::Rollout, a completion with rewards behind it. The seam between host data and tensors.
//
//   tree      prompt and completion of every row; a prompt that rows share is encoded once
//   collate   loss::Scored: flat [N] columns, row after row, no padding
//
// Old log-probs: a row that the weights of now generated has none yet; its old log-prob is the detached current one
// (ratio exactly 1, with gradient), and `remember` stores it for later iterations over the same generation. A row that
// other weights generated is never given that ratio: without old log-probs it takes those that its generator reported,
// and where there are none it is scored with the weights of now, and the log says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sampler {

// A column of log-probs [completion] of a rollout.
using RolloutColumn = std::vector<float> data::Rollout::*;

// Completion tokens of a row that carry loss.
[[nodiscard]] inline std::int64_t loss_tokens(const data::Rollout& r) {
  if (r.loss_mask.empty()) return static_cast<std::int64_t>(r.completion_ids.size());
  std::int64_t count = 0;
  for (const std::uint8_t m : r.loss_mask) count += m != 0;
  return count;
}

namespace detail {

// Concatenates one column of all rows [N]; undefined when a row lacks it.
[[nodiscard]] inline tensor::Tensor concatenate(std::span<const data::Rollout* const> rows, RolloutColumn column,
                                                const tensor::Tensor& like) {
  std::vector<double> flat;
  flat.reserve(static_cast<std::size_t>(like.numel()));
  for (const data::Rollout* r : rows) {
    const std::vector<float>& values = r->*column;
    if (values.size() != r->completion_ids.size()) return {};
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return tensor::from_values(flat, like.options().requires_grad(false));
}

[[nodiscard]] inline std::vector<float> slice_floats(const tensor::Tensor& column, std::int64_t begin,
                                                     std::int64_t length) {
  const tensor::Tensor part = column.detach().slice(0, begin, begin + length).to(at::kCPU, at::kFloat).contiguous();
  const float* p = part.const_data_ptr<float>();
  return {p, p + length};
}

}  // namespace detail

struct RolloutRows {
  using Row = data::Rollout;
  using View = std::span<const Row* const>;
  static constexpr loss::RowKind kind = loss::RowKind::samples;

  [[nodiscard]] static model::TokenTree tree(View rows, const loss::Needs& /*needs*/ = {}) {
    std::vector<model::Sequence> views;
    views.reserve(rows.size());
    for (const Row* r : rows) views.push_back({r->prompt_ids, r->completion_ids});
    return model::build_tree(views);
  }

  static void count(View rows, const loss::Needs& /*needs*/, loss::Counts& counts) {
    counts.rows += static_cast<double>(rows.size());
    for (const Row* r : rows) counts.tokens += static_cast<double>(loss_tokens(*r));
  }

  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs) {
    const auto total = static_cast<std::size_t>(scores.log_prob.numel());
    const auto options = scores.log_prob.options().requires_grad(false);
    std::vector<double> mask, lengths, advantages;
    std::vector<std::int64_t> row;
    mask.reserve(total);
    row.reserve(total);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& r = *rows[i];
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
    if (needs.old_log_prob) scored.old_log_prob = detail::concatenate(rows, &Row::old_log_probs, scores.log_prob);
    if (needs.reference_log_prob)
      scored.reference_log_prob = detail::concatenate(rows, &Row::reference_log_probs, scores.log_prob);
    if (needs.sampling_log_prob)
      scored.sampling_log_prob = detail::concatenate(rows, &Row::sampling_log_probs, scores.log_prob);
    return scored;
  }

  [[nodiscard]] static std::int64_t tokens(const Row& r) {
    return static_cast<std::int64_t>(r.prompt_ids.size() + r.completion_ids.size());
  }

  // Of advantage 0: a surrogate alone has no gradient there.
  [[nodiscard]] static bool idle(const Row& r) { return r.advantage == 0.0; }

  // Scores `rows` with `policy`, at most `rows_per_part` in a pass, into one column.
  static void score(model::Policy& policy, std::span<Row* const> rows, std::size_t rows_per_part, double temperature,
                    RolloutColumn column) {
    const c10::AutoGradMode no_gradient(false);
    for (std::size_t begin = 0; begin < rows.size(); begin += rows_per_part) {
      const auto part = rows.subspan(begin, std::min(rows_per_part, rows.size() - begin));
      store(part, policy.score(tree(part), {.temperature = temperature}).log_prob, column);
    }
  }

  // log_prob [N] into one column of the rows.
  static void store(std::span<Row* const> rows, const tensor::Tensor& log_prob, RolloutColumn column) {
    std::int64_t begin = 0;
    for (Row* r : rows) {
      const auto length = static_cast<std::int64_t>(r->completion_ids.size());
      r->*column = detail::slice_floats(log_prob, begin, length);
      begin += length;
    }
  }

  static void complete(std::span<Row* const> rows, const Scorers& scorers, const loss::Needs& needs,
                       Warnings& warnings) {
    if (needs.reference_log_prob && scorers.reference != nullptr) {
      std::vector<Row*> lacking;
      for (Row* r : rows)
        if (r->reference_log_probs.size() != r->completion_ids.size()) lacking.push_back(r);
      score(*scorers.reference, lacking, rows.size(), scorers.temperature, &Row::reference_log_probs);
    }
    if (!needs.old_log_prob) return;
    std::vector<Row*> unknown;
    for (Row* r : rows) {
      if (!r->old_log_probs.empty() || r->weights_version == scorers.version) continue;
      if (r->sampling_log_probs.size() == r->completion_ids.size())
        r->old_log_probs = r->sampling_log_probs;
      else
        unknown.push_back(r);
    }
    if (unknown.empty()) return;
    score(scorers.policy, unknown, rows.size(), scorers.temperature, &Row::old_log_probs);
    warnings.push_back(std::to_string(unknown.size()) + " completions of weights version " +
                       std::to_string(unknown.front()->weights_version) + " (now " + std::to_string(scorers.version) +
                       ") came without log-probs; they are scored with the weights of now, so that the ratio does not "
                       "tell how far the policy has moved");
  }

  // Rows without old log-probs were generated with the weights that scored them here.
  static void remember(std::span<Row* const> rows, const tensor::Tensor& log_prob) {
    std::int64_t begin = 0;
    for (Row* r : rows) {
      const auto length = static_cast<std::int64_t>(r->completion_ids.size());
      if (r->old_log_probs.empty()) r->old_log_probs = detail::slice_floats(log_prob, begin, length);
      begin += length;
    }
  }
};

static_assert(CompletedRows<RolloutRows> && RememberingRows<RolloutRows> && IdleRows<RolloutRows>);

}  // namespace rlalgo::sampler
