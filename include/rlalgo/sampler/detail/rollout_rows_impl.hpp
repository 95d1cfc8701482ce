// Definitions of rollout_rows.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
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
#include <rlalgo/tensor/reading.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sampler {

RLALGO_INLINE std::int64_t loss_tokens(const data::Row& r) {
  if (r.loss_mask.empty()) return static_cast<std::int64_t>(r.completion_ids.size());
  std::int64_t count = 0;
  for (const std::uint8_t m : r.loss_mask) count += m != 0;
  return count;
}

namespace detail {

// Tokens of the answer that stands behind a row; 0: none does.
inline std::size_t answer_tokens(const data::EpisodeRow& r) {
  return r.has_answer() ? r.episode().answer_ids.size() : 0;
}

// Whether token t of the answer has a likelihood term.
inline bool has_likelihood(const data::EpisodeRow& r, std::size_t t) {
  const std::vector<std::uint8_t>& mask = r.episode().answer_mask;
  return mask.empty() || mask[t] != 0;
}

inline model::Sequence sequence_of(const data::Row& r) { return {r.prompt_ids, r.completion_ids, r.routed_experts}; }

// Whether token t of a completion is scored: it carries loss, or is the last one, by which the row ends.
inline bool is_target(const data::Row& r, std::size_t t) {
  return r.loss_mask.empty() || r.loss_mask[t] != 0 || t + 1 == r.completion_ids.size();
}

// Tokens without loss are no targets: the head has no product for them. Rows of `tree` beyond these keep theirs.
inline void drop_weightless(model::TokenTree& tree, std::span<const data::Row* const> rows) {
  std::size_t kept = 0, next = 0;
  const auto take = [&](bool wanted) {
    tree.source[kept] = tree.source[next];
    tree.target[kept] = tree.target[next];
    ++next;
    kept += wanted ? 1 : 0;
  };
  for (std::size_t i = 0; i + 1 < tree.row_begin.size(); ++i) {
    const auto end = static_cast<std::size_t>(tree.row_begin[i + 1]), begin = next;
    while (next < end) take(i >= rows.size() || is_target(*rows[i], next - begin));
    tree.row_begin[i + 1] = static_cast<std::int64_t>(kept);
  }
  tree.source.resize(kept);
  tree.target.resize(kept);
}

// log_prob [N] of the targets of rows, in host memory, into a column of the rows; of other tokens it is 0, and nobody reads it.
inline void scatter(std::span<data::Row* const> rows, const tensor::Tensor& log_prob, RolloutColumn column) {
  const tensor::Tensor here = log_prob.to(at::kFloat).contiguous();
  const float* next = here.const_data_ptr<float>();
  for (data::Row* r : rows) {
    std::vector<float> values(r->completion_ids.size(), 0.0F);
    for (std::size_t t = 0; t < values.size(); ++t)
      if (is_target(*r, t)) values[t] = *next++;
    r->*column = std::move(values);
  }
}

// One column of all rows [N], 0 for the tokens of answers; undefined when a row lacks it.
inline tensor::Tensor concatenate(std::span<const data::EpisodeRow* const> rows, RolloutColumn column,
                                  std::size_t tokens, tensor::HostBlock& block) {
  std::vector<double> flat;
  flat.reserve(tokens);
  for (const data::EpisodeRow* r : rows) {
    const std::vector<float>& values = (**r).*column;
    if (values.size() != (*r)->completion_ids.size()) return {};
    for (std::size_t t = 0; t < values.size(); ++t)
      if (is_target(**r, t)) flat.push_back(values[t]);
  }
  flat.resize(tokens, 0.0);
  return block.add_numbers(flat);
}

// The old log-probs of all rows [N], 0 for the tokens of answers; those of a row without them are the detached ones of now.
inline void add_old_log_probs(std::span<const data::EpisodeRow* const> rows, std::size_t tokens,
                              tensor::HostBlock& block, RolloutRows::Columns& columns) {
  std::vector<double> flat;
  std::vector<std::uint8_t> known;
  for (const data::EpisodeRow* one : rows) {
    const data::Row& r = **one;
    const bool brings = r.old_log_probs.size() == r.completion_ids.size();
    for (std::size_t t = 0; t < r.completion_ids.size(); ++t) {
      if (!is_target(r, t)) continue;
      known.push_back(brings ? 1 : 0);
      flat.push_back(brings ? r.old_log_probs[t] : 0.0);
    }
  }
  if (std::find(known.begin(), known.end(), 1) == known.end()) return;
  const bool all = std::find(known.begin(), known.end(), 0) == known.end();
  flat.resize(tokens, 0.0);
  known.resize(tokens, 1);
  columns.data.old_log_prob = block.add_numbers(flat);
  if (!all) columns.known = block.add(tensor::from_values(known, at::TensorOptions().dtype(at::kBool)));
}

}  // namespace detail

RLALGO_INLINE model::TokenTree RolloutRows::tree(View rows, const loss::Needs& needs) {
  std::vector<model::Sequence> views;
  views.reserve(rows.size());
  for (const Row* r : rows) views.push_back(detail::sequence_of(**r));
  std::int64_t answers = 0;
  for (const Row* r : rows) {
    if (!needs.answer_likelihood || !r->has_answer()) continue;
    views.push_back({(*r)->prompt_ids, r->episode().answer_ids});
    answers += static_cast<std::int64_t>(r->episode().answer_ids.size());
  }
  model::TokenTree out = model::build_tree(views);
  std::vector<const data::Row*> own;
  for (const Row* r : rows) own.push_back(&**r);
  detail::drop_weightless(out, own);
  out.untempered = answers;
  return out;
}

RLALGO_INLINE std::vector<data::EpisodeRow> RolloutRows::rows_of(std::span<Sample* const> episodes) {
  std::vector<Row> out;
  for (data::Episode* episode : episodes)
    for (data::Row& row : episode->rows) out.emplace_back(*episode, row);
  return out;
}

RLALGO_INLINE void RolloutRows::count(View rows, const loss::Needs& needs, loss::Counts& counts) {
  counts.rows += static_cast<double>(rows.size());
  for (const Row* r : rows) {
    counts.tokens += static_cast<double>(loss_tokens(**r));
    for (std::size_t t = 0; needs.answer_likelihood && t < detail::answer_tokens(*r); ++t)
      counts.likelihood_tokens += detail::has_likelihood(*r, t) ? 1.0 : 0.0;
  }
}

RLALGO_INLINE RolloutRows::Columns RolloutRows::columns(View rows, const loss::Needs& needs, tensor::HostBlock& block) {
  std::vector<double> mask, lengths, advantages;
  std::vector<std::int64_t> row;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const data::Row& r = **rows[i];
    for (std::size_t t = 0; t < r.completion_ids.size(); ++t) {
      if (!detail::is_target(r, t)) continue;
      mask.push_back(r.loss_mask.empty() || r.loss_mask[t] != 0 ? 1.0 : 0.0);
      row.push_back(static_cast<std::int64_t>(i));
    }
    lengths.push_back(static_cast<double>(loss_tokens(r)));
    advantages.push_back(rows[i]->episode().advantage);
  }
  std::vector<double> likelihood(needs.answer_likelihood ? mask.size() : 0, 0.0);
  for (std::size_t i = 0; i < rows.size() && needs.answer_likelihood; ++i) {
    const std::size_t answer = detail::answer_tokens(*rows[i]);
    mask.insert(mask.end(), answer, 0.0);
    for (std::size_t t = 0; t < answer; ++t) likelihood.push_back(detail::has_likelihood(*rows[i], t) ? 1.0 : 0.0);
    row.insert(row.end(), answer, static_cast<std::int64_t>(i));
  }
  Columns out{detail::data_columns(mask, row, lengths, block)};
  loss::Scored& scored = out.data;
  scored.advantage = block.add_numbers(advantages);                                     // [R]
  if (needs.answer_likelihood) scored.likelihood_mask = block.add_numbers(likelihood);  // [N]
  if (needs.old_log_prob) detail::add_old_log_probs(rows, mask.size(), block, out);
  if (needs.reference_log_prob)
    scored.reference_log_prob = detail::concatenate(rows, &data::Row::reference_log_probs, mask.size(), block);
  if (needs.sampling_log_prob)
    scored.sampling_log_prob = detail::concatenate(rows, &data::Row::sampling_log_probs, mask.size(), block);
  return out;
}

RLALGO_INLINE loss::Scored RolloutRows::collate(View /*rows*/, const model::Scores& scores,
                                                const loss::Needs& /*needs*/, const Columns& columns) {
  loss::Scored scored = detail::with_scores(columns.data, scores);
  if (columns.known.defined())
    scored.old_log_prob = tensor::where(columns.known, scored.old_log_prob, scores.log_prob.detach());
  return scored;
}

RLALGO_INLINE loss::Scored RolloutRows::collate(View rows, const model::Scores& scores, const loss::Needs& needs) {
  return detail::collated<RolloutRows>(rows, scores, needs);
}

RLALGO_INLINE std::int64_t RolloutRows::tokens(const Row& r) {
  return static_cast<std::int64_t>(r->prompt_ids.size() + r->completion_ids.size());
}

RLALGO_INLINE void RolloutRows::score(model::Policy& policy, std::span<data::Row* const> rows,
                                      std::size_t rows_per_part, double temperature, RolloutColumn column) {
  const c10::AutoGradMode no_gradient(false);
  std::vector<tensor::Tensor> found;  // by part, read together
  for (std::size_t begin = 0; begin < rows.size(); begin += rows_per_part) {
    const auto part = rows.subspan(begin, std::min(rows_per_part, rows.size() - begin));
    std::vector<model::Sequence> views;
    for (const data::Row* r : part) views.push_back(detail::sequence_of(*r));
    model::TokenTree part_tree = model::build_tree(views);
    detail::drop_weightless(part_tree, std::vector<const data::Row*>(part.begin(), part.end()));
    if (column == &data::Row::reference_log_probs) part_tree.routed_experts.clear();  // its routers are its own
    found.push_back(policy.score(part_tree, {.temperature = temperature}).log_prob.detach());
  }
  tensor::Reading reading;
  for (tensor::Tensor& one : found) reading.add(one);
  reading.fetch();
  for (std::size_t p = 0; p < found.size(); ++p)
    detail::scatter(rows.subspan(p * rows_per_part, std::min(rows_per_part, rows.size() - p * rows_per_part)), found[p],
                    column);
}

RLALGO_INLINE void RolloutRows::store(std::span<data::Row* const> rows, const tensor::Tensor& log_prob,
                                      RolloutColumn column) {
  detail::scatter(rows, log_prob.detach().to(at::kCPU), column);  // one copy of all rows
}

RLALGO_INLINE void RolloutRows::complete(std::span<Row* const> rows, const Scorers& scorers, const loss::Needs& needs,
                                         Warnings& warnings) {
  if (needs.reference_log_prob && scorers.reference != nullptr) {
    std::vector<data::Row*> lacking;
    for (Row* one : rows)
      if (data::Row& r = **one; r.reference_log_probs.size() != r.completion_ids.size()) lacking.push_back(&r);
    score(*scorers.reference, lacking, rows.size(), scorers.temperature, &data::Row::reference_log_probs);
  }
  if (!needs.old_log_prob || scorers.corrects_sampling) return;
  std::vector<data::Row*> unknown;
  for (Row* one : rows) {
    data::Row& r = **one;
    if (!r.old_log_probs.empty() || r.weights_version == scorers.version) continue;
    if (r.sampling_log_probs.size() == r.completion_ids.size())
      r.old_log_probs = r.sampling_log_probs;
    else
      unknown.push_back(&r);
  }
  if (unknown.empty()) return;
  score(scorers.policy, unknown, rows.size(), scorers.temperature, &data::Row::old_log_probs);
  warnings.push_back(std::to_string(unknown.size()) + " completions of weights version " +
                     std::to_string(unknown.front()->weights_version) + " (now " + std::to_string(scorers.version) +
                     ") came without log-probs; they are scored with the weights of now, so that the ratio does not "
                     "tell how far the policy has moved");
}

RLALGO_INLINE void RolloutRows::remember(std::span<Row* const> rows, const tensor::Tensor& log_prob) {
  const tensor::Tensor here = log_prob.detach().to(at::kCPU);
  std::int64_t begin = 0;
  for (Row* one : rows) {
    data::Row* const r = &**one;
    std::int64_t length = 0;
    for (std::size_t t = 0; t < r->completion_ids.size(); ++t) length += detail::is_target(*r, t) ? 1 : 0;
    if (r->old_log_probs.empty())
      detail::scatter(std::span(&r, 1), here.slice(0, begin, begin + length), &data::Row::old_log_probs);
    begin += length;
  }
}

}  // namespace rlalgo::sampler
