// Definitions of score_generation.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>

namespace rlalgo::sampler::detail {

RLALGO_INLINE bool terminated(const data::Episode& episode, const Ends& ends) {
  const data::Row& last = episode.rows.back();
  const std::vector<data::TokenId>& ids = last.completion_ids;
  if (ends.strings && last.finish == data::Finish::stop) return true;
  return !ids.empty() && std::find(ends.ids.begin(), ends.ids.end(), ids.back()) != ends.ids.end();
}

RLALGO_INLINE std::int64_t drawn_tokens(const data::Episode& episode) {
  std::int64_t count = 0;
  for (const data::Row& r : episode.rows)
    count += r.loss_mask.empty() ? static_cast<std::int64_t>(r.completion_ids.size())
                                 : std::count(r.loss_mask.begin(), r.loss_mask.end(), 1);
  return count;
}

RLALGO_INLINE void decode_rows(data::Episode& episode, const Decode& decode) {
  for (data::Row& r : episode.rows) r.text = decode(r.completion_ids);
}

RLALGO_INLINE void mask_all(data::Episode& episode) {
  for (data::Row& r : episode.rows) r.loss_mask.assign(r.completion_ids.size(), 0);
}

RLALGO_INLINE data::Json completion_of(const data::Episode& episode) {
  const bool played = episode.interaction && !episode.interaction->messages.is_null();
  if (played && episode.interaction->messages.is_string()) return episode.interaction->messages;
  if (!episode.prompt->is_array()) return episode.first().text;
  if (played) return episode.interaction->messages;
  return data::Json::array({data::Json{{"role", "assistant"}, {"content", episode.first().text}}});
}

// Episodes that failed: their number and their kinds, where there are episodes at all.
inline void note_failed_episodes(const Generation& generation, reward::RewardLog& log) {
  std::map<std::string, double> kinds;
  std::size_t episodes = 0, failed = 0;
  for (std::size_t i = 0; i < generation.episodes.size(); ++i) {
    const data::Episode& r = generation.episodes[i];
    if (!r.interaction || (r.interaction->turns == 0 && r.interaction->failure.empty())) continue;
    ++episodes;
    if (r.interaction->failure.empty()) continue;
    ++failed;
    ++kinds[r.interaction->failure];
    log.failed.push_back(i);
  }
  if (episodes == 0) return;
  const auto n = static_cast<double>(episodes);
  log.own_metrics.emplace_back("rollout/failed", static_cast<double>(failed) / n);
  for (const auto& [kind, count] : kinds) log.own_metrics.emplace_back("rollout/failed/" + kind, count / n);
}

RLALGO_INLINE void run_rewards(Generation& generation, std::span<const WeightedReward> rewards, std::int64_t step,
                               RolloutBatch& batch) {
  const std::size_t n = generation.episodes.size();
  std::vector<const data::Json*> prompts;
  std::vector<data::Json> completions, columns;
  std::vector<std::string> texts;
  std::vector<std::span<const std::int32_t>> ids;
  std::vector<std::uint8_t> failed;
  std::deque<std::vector<data::TokenId>> joined;  // completions of several rows
  for (const data::Episode& r : generation.episodes) {
    prompts.push_back(r.interaction && !r.interaction->prompt.is_null() ? &r.interaction->prompt : &*r.prompt);
    completions.push_back(completion_of(r));
    columns.push_back(r.columns);
    if (r.interaction && !std::isnan(r.interaction->reward))
      columns.back()["environment_reward"] = r.interaction->reward;
    else if (r.interaction && r.interaction->turns > 0 && columns.back().is_object())
      columns.back().erase("environment_reward");  // the data's is none of the environment
    if (r.interaction && r.interaction->columns.is_object()) columns.back().update(r.interaction->columns);
    texts.push_back(r.interaction && !r.interaction->messages.is_null() ? r.interaction->last_text : r.first().text);
    failed.push_back(r.interaction && !r.interaction->failure.empty() ? 1 : 0);
    if (r.rows.size() == 1) {
      ids.emplace_back(r.first().completion_ids);
      continue;
    }
    auto& all = joined.emplace_back();
    for (const data::Row& row : r.rows) all.insert(all.end(), row.completion_ids.begin(), row.completion_ids.end());
    ids.emplace_back(all);
  }
  std::vector<double> weights;
  for (const WeightedReward& reward : rewards) weights.push_back(reward.weight);
  generation.rewards = core::RewardTable(reward_names(rewards), weights, n);
  reward::RewardLog log;
  const reward::RewardCall call{.prompts = prompts,
                                .completions = completions,
                                .texts = texts,
                                .completion_ids = ids,
                                .columns = columns,
                                .failed = failed,
                                .step = step,
                                .log = &log};
  for (std::size_t k = 0; k < rewards.size(); ++k) {
    const std::vector<double> values = reward::evaluate(*rewards[k].function, call);
    for (std::size_t i = 0; i < n; ++i) generation.rewards(i, k) = values[i];
  }
  note_failed_episodes(generation, log);
  for (const std::size_t i : log.failed) {
    for (std::size_t k = 0; k < rewards.size(); ++k)
      generation.rewards(i, k) = std::numeric_limits<double>::quiet_NaN();
    mask_all(generation.episodes[i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double>& row = generation.episodes[i].rewards;
    row.clear();
    for (std::size_t k = 0; k < rewards.size(); ++k) row.push_back(generation.rewards(i, k));
  }
  batch.warnings.insert(batch.warnings.end(), log.warnings.begin(), log.warnings.end());
  for (const auto* logged : {&log.own_metrics, &log.metrics})
    for (const auto& [name, value] : *logged)
      if (!std::isnan(value)) batch.metrics.mean(name, value, 1.0);
  for (const auto& [column, entries] : log.extras)
    for (std::size_t i = 0; i < n; ++i) generation.episodes[i].logged[column] = entries[i];
}

RLALGO_INLINE void CompletionLengths::add(const data::Episode& episode, const Ends& ends) {
  const auto length = static_cast<double>(drawn_tokens(episode));
  sum_ += length;
  shortest_ = rows_ == 0 ? length : std::fmin(shortest_, length);
  longest_ = rows_ == 0 ? length : std::fmax(longest_, length);
  ++rows_;
  if (!terminated(episode, ends)) return;
  ended_shortest_ = ended_ == 0 ? length : std::fmin(ended_shortest_, length);
  ended_longest_ = ended_ == 0 ? length : std::fmax(ended_longest_, length);
  ended_sum_ += length;
  ++ended_;
}

RLALGO_INLINE std::vector<double> CompletionLengths::numbers() const {
  return {rows_, sum_, shortest_, longest_, ended_, ended_sum_, ended_shortest_, ended_longest_};
}
RLALGO_INLINE void CompletionLengths::merge(const std::vector<double>& numbers) {
  const auto join = [&](std::size_t at, double& rows, double& sum, double& shortest, double& longest) {
    if (numbers.at(at) == 0) return;
    shortest = rows == 0 ? numbers.at(at + 2) : std::fmin(shortest, numbers.at(at + 2));
    longest = rows == 0 ? numbers.at(at + 3) : std::fmax(longest, numbers.at(at + 3));
    rows += numbers.at(at);
    sum += numbers.at(at + 1);
  };
  join(0, rows_, sum_, shortest_, longest_);
  join(4, ended_, ended_sum_, ended_shortest_, ended_longest_);
}
RLALGO_INLINE void CompletionLengths::report(core::Metrics& metrics) const {
  metrics.mean("completions/mean_length", sum_, rows_);
  metrics.minimum("completions/min_length", shortest_);
  metrics.maximum("completions/max_length", longest_);
  metrics.mean("completions/clipped_ratio", rows_ - ended_, rows_);
  metrics.mean("completions/mean_terminated_length", ended_sum_, ended_ + weightless);
  metrics.minimum("completions/min_terminated_length", ended_shortest_);
  metrics.maximum("completions/max_terminated_length", ended_longest_);
}

RLALGO_INLINE void episode_metrics(const Generation& generation, core::Metrics& metrics) {
  double episodes = 0, turns = 0, calls = 0, failures = 0;
  bool tools = false;
  for (const data::Episode& r : generation.episodes) {
    if (!r.interaction || r.interaction->turns == 0) continue;
    ++episodes;
    turns += static_cast<double>(r.interaction->turns);
    calls += static_cast<double>(r.interaction->tool_calls);
    failures += static_cast<double>(r.interaction->tool_failures);
    tools = tools || r.interaction->has_tools;
  }
  if (episodes == 0) return;
  metrics.mean("environment/turns", turns, episodes);
  if (!tools) return;
  metrics.mean("tools/call_frequency", calls, episodes);
  metrics.mean("tools/failure_frequency", failures, calls + weightless);
}

RLALGO_INLINE void rollout_metrics(const Generation& generation, core::Metrics& metrics) {
  double episodes = 0, turns = 0, fewest = 0, most = 0, rows = 0, scored = 0, reward = 0, rewarded = 0;
  for (std::size_t i = 0; i < generation.episodes.size(); ++i) {
    const data::Episode& r = generation.episodes[i];
    if (!r.interaction || r.interaction->turns == 0 || !r.interaction->failure.empty()) continue;
    const auto own = static_cast<double>(r.interaction->turns);
    fewest = episodes == 0 ? own : std::fmin(fewest, own);
    most = std::fmax(most, own);
    turns += own;
    rows += static_cast<double>(r.rows.size());
    ++episodes;
    const double value = generation.rewards.weighted_sum(i);
    if (std::isnan(value)) continue;
    ++scored;
    reward += value;
    rewarded += value != 0 ? 1.0 : 0.0;
  }
  if (episodes == 0) return;
  metrics.mean("rollout/num_turns/mean", turns, episodes);
  metrics.minimum("rollout/num_turns/min", fewest);
  metrics.maximum("rollout/num_turns/max", most);
  metrics.mean("rollout/reward/mean", reward, scored);
  metrics.mean("rollout/reward/nonzero_frac", rewarded, scored);
  metrics.mean("rollout/n_samples", episodes, 1.0);
  metrics.mean("rollout/rows", rows, episodes);
}

RLALGO_INLINE void reward_metric(const std::string& mean_name, const std::string& deviation_name,
                                 std::span<const double> values, core::Metrics& metrics) {
  const core::Moments moments = core::moments(values);
  const auto count = static_cast<double>(moments.count);
  metrics.mean(mean_name, moments.count > 0 ? moments.mean * count : 0.0, count);
  const bool known = !std::isnan(moments.deviation);
  metrics.mean(deviation_name, known ? moments.deviation : 0.0, known ? 1.0 : 0.0);
}

RLALGO_INLINE void reward_metrics(const Generation& generation, RolloutBatch& batch) {
  const core::RewardTable& table = generation.rewards;
  std::vector<double> values(table.rows());
  for (std::size_t k = 0; k < table.columns(); ++k) {
    for (std::size_t i = 0; i < table.rows(); ++i) values[i] = table(i, k);
    const std::string name = "rewards/" + table.names()[k];
    reward_metric(name + "/mean", name + "/std", values, batch.metrics);
  }
  for (std::size_t i = 0; i < table.rows(); ++i) values[i] = table.weighted_sum(i);
  reward_metric("reward", "reward_std", values, batch.metrics);
  for (std::size_t i = 0; i < values.size() && table.columns() > 0 && batch.warnings.empty(); ++i)
    if (std::isnan(values[i])) {
      batch.warnings.push_back("no reward function applies to the completion of dataset row " +
                               std::to_string(generation.episodes[i].dataset_row) +
                               " (and maybe others): its advantage is 0");
      break;
    }
}

}  // namespace rlalgo::sampler::detail
