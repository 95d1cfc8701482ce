// Definitions of growing_generation.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/activity.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sampler/detail/growing_generation.hpp>

namespace rlalgo::sampler::detail {

RLALGO_INLINE std::int64_t tokens_of(const Generation& generation) {
  std::int64_t tokens = 0;
  for (const data::Episode& r : generation.episodes) {
    tokens += drawn_tokens(r);
    for (const data::Row& row : r.rows) tokens += static_cast<std::int64_t>(row.prompt_ids.size());
  }
  return tokens;
}

RLALGO_INLINE core::RewardTable table_of(std::span<const WeightedReward> rewards, std::size_t rows) {
  std::vector<double> weights;
  for (const WeightedReward& reward : rewards) weights.push_back(reward.weight);
  return {reward_names(rewards), std::move(weights), rows};
}

RLALGO_INLINE void score(GenerationPart& part, std::span<const WeightedReward> rewards, const Decode& decode,
                         const Ends& ends, bool mask_truncated, std::int64_t step) {
  Generation& generation = *part.generation;
  part.tokens = tokens_of(generation);
  if (generation.episodes.empty()) return;
  for (data::Episode& r : generation.episodes) {
    decode_rows(r, decode);
    part.lengths.add(r, ends);
  }
  episode_metrics(generation, part.about.metrics);
  for (data::Episode& r : generation.episodes)
    if (mask_truncated && !terminated(r, ends)) mask_all(r);
  const core::Activity rewarding("rewards");
  const os::Stopwatch watch;
  run_rewards(generation, rewards, step, part.about);
  part.rewarding = watch.seconds();
}

RLALGO_INLINE GrowingGeneration::GrowingGeneration(std::int64_t number, std::size_t groups, std::size_t copies,
                                                   std::vector<std::size_t> prompts,
                                                   std::span<const WeightedReward> rewards) {
  made_.number = number;
  made_.generation = std::make_shared<Generation>();
  Generation& whole = *made_.generation;
  whole.episodes.resize(groups * copies);
  for (std::size_t g = 0; g < groups; ++g) whole.groups.append(copies);
  whole.prompts = std::move(prompts);
  whole.rewards = table_of(rewards, whole.episodes.size());
}

RLALGO_INLINE void GrowingGeneration::add(Generation&& rows) {
  Generation& whole = *made_.generation;
  for (std::size_t i = 0; i < rows.episodes.size(); ++i, ++rows_) {
    for (std::size_t k = 0; k < whole.rewards.columns(); ++k) whole.rewards(rows_, k) = rows.rewards(i, k);
    whole.episodes[rows_] = std::move(rows.episodes[i]);
  }
}

RLALGO_INLINE void GrowingGeneration::note(const GenerationPart& part) {
  made_.tokens += part.tokens;
  lengths_.merge(part.lengths.numbers());
  metrics_.merge(part.about.metrics);
  made_.about.warnings.insert(made_.about.warnings.end(), part.about.warnings.begin(), part.about.warnings.end());
}

RLALGO_INLINE void GrowingGeneration::complete(std::optional<std::int64_t> num_tokens) {
  core::Metrics& metrics = made_.about.metrics;
  if (num_tokens) metrics.last("num_tokens", static_cast<double>(*num_tokens));
  lengths_.report(metrics);
  metrics.merge(metrics_);
  reward_metrics(*made_.generation, made_.about);
  rollout_metrics(*made_.generation, metrics);
  made_.about.seconds = {{"generate", generating_}, {"reward", rewarding_}};
}

}  // namespace rlalgo::sampler::detail
