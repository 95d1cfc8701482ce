// What happens to fresh generations before they are trained on: advantages, reference and old log-probs. No gradient.
//
//   assign_advantages   rewards → one advantage per rollout, by the method's aggregation and estimator
//   score_columns       log-probs of a model for rows that lack them, in micro-batches
//
// Invariant: when an optimizer step begins, every row that will be trained after the weights change carries
// old_log_probs. Rows trained in the step that generated them need none: ratio 1 by definition.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/trainer/collate.hpp>

namespace rlalgo::trainer {

// Σ_t m (o − f) of each rollout, both of which it must carry; adds kl, the mean of o − f over the loss tokens, nats.
[[nodiscard]] inline std::vector<double> divergences(const sampler::Generation& generation, core::Metrics& metrics) {
  std::vector<double> out;
  double total = 0, tokens = 0;
  for (const data::Rollout& r : generation.rollouts) {
    double sum = 0;
    for (std::size_t t = 0; t < r.completion_ids.size(); ++t)
      if (r.loss_mask.empty() || r.loss_mask[t] != 0)
        sum += static_cast<double>(r.old_log_probs[t]) - static_cast<double>(r.reference_log_probs[t]);
    out.push_back(sum);
    total += sum;
    tokens += static_cast<double>(loss_tokens(r));
  }
  metrics.mean("kl", total, tokens);
  return out;
}

// Sets Rollout::advantage and adds frac_reward_zero_std: the share of rows whose scaling deviation is at most 1e-8 (an
// undefined deviation counts as non-zero).
template <class G, class A>
void assign_advantages(const G& aggregation, const A& estimator, sampler::Generation& generation,
                       core::Metrics& metrics) {
  std::vector<double> divergence;
  if (aggregation::needs_divergence(aggregation)) divergence = divergences(generation, metrics);
  const aggregation::Result result =
      aggregation::aggregate(aggregation, estimator, generation.rewards, generation.groups, divergence);
  double zero = 0;
  for (std::size_t i = 0; i < generation.rollouts.size(); ++i) {
    generation.rollouts[i].advantage = result.advantage[i];
    zero += std::abs(result.spread[i]) <= 1e-8 ? 1.0 : 0.0;
  }
  metrics.mean("frac_reward_zero_std", zero, static_cast<double>(generation.rollouts.size()));
}

// Scores `rows` with `policy` in chunks of `rows_per_part` and stores the log-probs in the column that `column`
// selects.
template <class Column>
void score_columns(model::Policy& policy, Rows rows, std::size_t rows_per_part, double temperature, Column column) {
  const c10::AutoGradMode no_gradient(false);
  for (std::size_t begin = 0; begin < rows.size(); begin += rows_per_part) {
    const Rows part = rows.subspan(begin, std::min(rows_per_part, rows.size() - begin));
    const auto views = sequences(part);
    const model::Scores scores = policy.score(model::build_tree(views), {.temperature = temperature});
    store(part, scores.log_prob, column);
  }
}

// The rollouts of fresh generations that no micro-batch of this step holds: they are trained on after a weight update.
[[nodiscard]] inline std::vector<data::Rollout*> trained_later(const sampler::RolloutBatch& batch) {
  std::unordered_set<const data::Rollout*> now;
  for (const auto& part : batch.parts) now.insert(part.begin(), part.end());
  std::vector<data::Rollout*> later;
  for (const auto& generation : batch.fresh)
    for (data::Rollout& rollout : generation->rollouts)
      if (!now.contains(&rollout)) later.push_back(&rollout);
  return later;
}

[[nodiscard]] inline std::vector<data::Rollout*> all_rollouts(const sampler::RolloutBatch& batch) {
  std::vector<data::Rollout*> rows;
  for (const auto& generation : batch.fresh)
    for (data::Rollout& rollout : generation->rollouts) rows.push_back(&rollout);
  return rows;
}

// The micro-batches without the rows whose advantage is exactly 0; skipped_zero_adv_rows, the share of rows left out.
// Where a surrogate is all there is to the loss, the gradient stays the same: the counts it is divided by are those of
// all rows. When nothing would remain, one row does, so that every parameter has its (zero) gradient.
[[nodiscard]] inline std::vector<std::vector<data::Rollout*>> without_idle_rows(
    std::span<const std::vector<data::Rollout*>> parts, core::Metrics& metrics) {
  std::vector<std::vector<data::Rollout*>> out(parts.size());
  data::Rollout* any = nullptr;
  double rows = 0, kept = 0;
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (data::Rollout* row : parts[p]) {
      ++rows;
      if (any == nullptr) any = row;
      if (row->advantage == 0.0) continue;
      ++kept;
      out[p].push_back(row);
    }
  if (kept == 0 && any != nullptr) out.front().push_back(any);
  metrics.mean("skipped_zero_adv_rows", rows - kept, rows);
  return out;
}

}  // namespace rlalgo::trainer
