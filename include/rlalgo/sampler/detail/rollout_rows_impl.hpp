// Definitions of rollout_rows.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/sampler/detail/scored_columns.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sampler {

RLALGO_INLINE std::int64_t loss_tokens(const data::Rollout& r) {
  if (r.loss_mask.empty()) return static_cast<std::int64_t>(r.completion_ids.size());
  std::int64_t count = 0;
  for (const std::uint8_t m : r.loss_mask) count += m != 0;
  return count;
}

namespace detail {

// Whether token t of the answer has a likelihood term.
inline bool has_likelihood(const data::Rollout& r, std::size_t t) {
  return r.answer_mask.empty() || r.answer_mask[t] != 0;
}

// Concatenates one column of all rows [N], 0 for the tokens of answers; undefined when a row lacks it.
inline tensor::Tensor concatenate(std::span<const data::Rollout* const> rows, RolloutColumn column,
                                  const tensor::Tensor& like) {
  std::vector<double> flat;
  flat.reserve(static_cast<std::size_t>(like.numel()));
  for (const data::Rollout* r : rows) {
    const std::vector<float>& values = r->*column;
    if (values.size() != r->completion_ids.size()) return {};
    flat.insert(flat.end(), values.begin(), values.end());
  }
  flat.resize(static_cast<std::size_t>(like.numel()), 0.0);
  return tensor::from_values(flat, like.options().requires_grad(false));
}

// The old log-probs of all rows [N], 0 for the tokens of answers; of a row without them the detached ones of now.
inline tensor::Tensor old_or_current(std::span<const data::Rollout* const> rows, const tensor::Tensor& log_prob) {
  const auto brings = [](const data::Rollout* r) {
    return !r->completion_ids.empty() && r->old_log_probs.size() == r->completion_ids.size();
  };
  if (std::none_of(rows.begin(), rows.end(), brings)) return log_prob.detach();
  const tensor::Tensor now = log_prob.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* current = now.const_data_ptr<double>();
  std::vector<double> flat(current, current + now.numel());
  std::size_t at = 0;
  for (const data::Rollout* r : rows) {
    if (brings(r))
      std::copy(r->old_log_probs.begin(), r->old_log_probs.end(), flat.begin() + static_cast<std::ptrdiff_t>(at));
    at += r->completion_ids.size();
  }
  std::fill(flat.begin() + static_cast<std::ptrdiff_t>(at), flat.end(), 0.0);
  return tensor::from_values(flat, log_prob.options().requires_grad(false));
}

inline std::vector<float> slice_floats(const tensor::Tensor& column, std::int64_t begin, std::int64_t length) {
  const tensor::Tensor part = column.detach().slice(0, begin, begin + length).to(at::kCPU, at::kFloat).contiguous();
  const float* p = part.const_data_ptr<float>();
  return {p, p + length};
}

}  // namespace detail

RLALGO_INLINE model::TokenTree RolloutRows::tree(View rows, const loss::Needs& needs) {
  std::vector<model::Sequence> views;
  views.reserve(rows.size());
  for (const Row* r : rows) views.push_back({r->prompt_ids, r->completion_ids, r->routed_experts});
  std::int64_t answers = 0;
  for (const Row* r : rows) {
    if (!needs.answer_likelihood || r->answer_ids.empty()) continue;
    views.push_back({r->prompt_ids, r->answer_ids});
    answers += static_cast<std::int64_t>(r->answer_ids.size());
  }
  model::TokenTree out = model::build_tree(views);
  out.untempered = answers;
  return out;
}

RLALGO_INLINE std::vector<data::Rollout*> RolloutRows::rows_of(std::span<Row* const> samples) {
  std::vector<Row*> out;
  for (Row* sample : samples) {
    out.push_back(sample);
    for (Row& row : sample->further) {
      row.rewards = sample->rewards;
      row.advantage = sample->advantage;
      row.logged = sample->logged;
      out.push_back(&row);
    }
  }
  return out;
}

RLALGO_INLINE void RolloutRows::count(View rows, const loss::Needs& needs, loss::Counts& counts) {
  counts.rows += static_cast<double>(rows.size());
  for (const Row* r : rows) {
    counts.tokens += static_cast<double>(loss_tokens(*r));
    for (std::size_t t = 0; needs.answer_likelihood && t < r->answer_ids.size(); ++t)
      counts.likelihood_tokens += detail::has_likelihood(*r, t) ? 1.0 : 0.0;
  }
}

RLALGO_INLINE loss::Scored RolloutRows::collate(View rows, const model::Scores& scores, const loss::Needs& needs) {
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
  std::vector<double> likelihood(needs.answer_likelihood ? mask.size() : 0, 0.0);
  for (std::size_t i = 0; i < rows.size() && needs.answer_likelihood; ++i) {
    const std::size_t answer = rows[i]->answer_ids.size();
    mask.insert(mask.end(), answer, 0.0);
    for (std::size_t t = 0; t < answer; ++t) likelihood.push_back(detail::has_likelihood(*rows[i], t) ? 1.0 : 0.0);
    row.insert(row.end(), answer, static_cast<std::int64_t>(i));
  }
  loss::Scored scored = detail::scored_columns(scores, mask, row, lengths);
  scored.advantage = tensor::from_values(advantages, options);                                     // [R]
  if (needs.answer_likelihood) scored.likelihood_mask = tensor::from_values(likelihood, options);  // [N]
  if (needs.old_log_prob) scored.old_log_prob = detail::old_or_current(rows, scores.log_prob);
  if (needs.reference_log_prob)
    scored.reference_log_prob = detail::concatenate(rows, &Row::reference_log_probs, scores.log_prob);
  if (needs.sampling_log_prob)
    scored.sampling_log_prob = detail::concatenate(rows, &Row::sampling_log_probs, scores.log_prob);
  return scored;
}

RLALGO_INLINE std::int64_t RolloutRows::tokens(const Row& r) {
  return static_cast<std::int64_t>(r.prompt_ids.size() + r.completion_ids.size());
}

RLALGO_INLINE void RolloutRows::score(model::Policy& policy, std::span<Row* const> rows, std::size_t rows_per_part,
                                      double temperature, RolloutColumn column) {
  const c10::AutoGradMode no_gradient(false);
  for (std::size_t begin = 0; begin < rows.size(); begin += rows_per_part) {
    const auto part = rows.subspan(begin, std::min(rows_per_part, rows.size() - begin));
    model::TokenTree part_tree = tree(part);
    if (column == &Row::reference_log_probs) part_tree.routed_experts.clear();  // its routers are its own
    store(part, policy.score(part_tree, {.temperature = temperature}).log_prob, column);
  }
}

RLALGO_INLINE void RolloutRows::store(std::span<Row* const> rows, const tensor::Tensor& log_prob,
                                      RolloutColumn column) {
  std::int64_t begin = 0;
  for (Row* r : rows) {
    const auto length = static_cast<std::int64_t>(r->completion_ids.size());
    r->*column = detail::slice_floats(log_prob, begin, length);
    begin += length;
  }
}

RLALGO_INLINE void RolloutRows::complete(std::span<Row* const> rows, const Scorers& scorers, const loss::Needs& needs,
                                         Warnings& warnings) {
  if (needs.reference_log_prob && scorers.reference != nullptr) {
    std::vector<Row*> lacking;
    for (Row* r : rows)
      if (r->reference_log_probs.size() != r->completion_ids.size()) lacking.push_back(r);
    score(*scorers.reference, lacking, rows.size(), scorers.temperature, &Row::reference_log_probs);
  }
  if (!needs.old_log_prob || scorers.corrects_sampling) return;
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

RLALGO_INLINE void RolloutRows::remember(std::span<Row* const> rows, const tensor::Tensor& log_prob) {
  std::int64_t begin = 0;
  for (Row* r : rows) {
    const auto length = static_cast<std::int64_t>(r->completion_ids.size());
    if (r->old_log_probs.empty()) r->old_log_probs = detail::slice_floats(log_prob, begin, length);
    begin += length;
  }
}

}  // namespace rlalgo::sampler
