// Definitions of health.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/health.hpp>

namespace rlalgo::run {

RLALGO_INLINE std::span<const HealthRule> health_rules() {
  constexpr double none = std::numeric_limits<double>::infinity();
  static constexpr const char* solved_task =
      "nearly every completion earns the whole reward, so there is little left to learn from these prompts: choose "
      "harder ones, or end the run";
  static const HealthRule rules[] = {
      {"rewards/*/mean", 0.15, none, 1e-12, none, 20,
       "the reward is always 0: call the function on a few completions by hand; check the columns it reads, the prompt "
       "template and max_completion_length",
       true, "ebft/alignment"},
      {"rewards/*/failed", 0.0, 0.01, -none, 0.1, 10,
       "completions are left without this reward, as trl.reward_on_failure says: the function raises, hangs, or "
       "returns "
       "infinities; the log names the first cause of each step"},
      {"reward_std", 1e-8, none, 1e-8, none, 10,
       "all completions get the same reward, so nothing is learned: make the reward finer, the task easier, or sample "
       "warmer",
       false, nullptr, nullptr, nullptr, nullptr, solved_task},
      {"frac_reward_zero_std", 0.0, 0.8, -none, 0.999, 10,
       "no group has completions of different reward: raise num_generations or temperature, or choose prompts that are "
       "sometimes solved",
       false, nullptr, nullptr, nullptr, nullptr, solved_task},
      {"ebft/alignment", 0.3, 2.0, 0.0, none, 20,
       "features move away from the ground truth's: lower learning_rate, raise ebft.ce_coef; with ebft.use_whitening "
       "the "
       "mean lies near 1 at best, and early values near 0.3 are usual"},
      {"ebft/diversity", -6.0, 1.0, -none, 1.9, 10,
       "the samples of a group are nearly the same: sample warmer, raise ebft.diversity_coef, or set "
       "ebft.use_whitening: "
       "true where features of any text are alike"},
      {"ebft/cfm_loss", 0.0, 10.0, -none, 100.0, 20,
       "the mean feature of the samples is far from the ground truth's: check the data and ebft.feature_layers"},
      {"ebft/advantages_std", 1e-8, none, 1e-8, none, 10,
       "all samples of every group get the same reward, so nothing is learned: raise the temperature"},
      {"ebft/steps_without_blocks", 0.0, 0.0, -none, 0.5, 10,
       "most steps have no document that is long enough: lower ebft.context_length or ebft.generate_max_len, or set "
       "ebft.pack_documents: true"},
      {"grad_norm", 0.001, 1.0, -none, 10.0, 10,
       "low: next to nothing is learned (reward_std and learning_rate say whether there is something to learn)", false,
       "ebft/advantages_std", nullptr, nullptr,
       "high: steps are unstable: lower learning_rate, keep max_grad_norm at 1", solved_task},
      {"grad_norm", 0.0, 1.0, -none, 10.0, 10, "steps are unstable: lower learning_rate, keep max_grad_norm at 1",
       false, nullptr, "ebft/advantages_std"},
      {"entropy", 0.05, 0.5, 0.01, 1.0, 10,
       "low: the policy is nearly certain of every token (temperature 0.8 to 1, lower learning_rate, beta above 0, 16 "
       "or "
       "more generations, entropy_coef)",
       false, "ebft/num_blocks", nullptr, nullptr,
       "high: the policy is uncertain of most tokens and does not converge: lower the temperature, check the chat "
       "template",
       solved_task},
      {"entropy", 0.05, none, 0.01, none, 10,
       "low: the policy collapsed: lower learning_rate, raise ebft.ce_coef or ebft.diversity_coef", false, nullptr,
       "ebft/num_blocks"},
      {"kl", 0.0, 0.5, -none, 2.0, 10, "the policy left its reference: raise beta, lower learning_rate"},
      {"sampling/sampling_logp_difference/mean", 0.0, 0.1, -none, 1.0, 10,
       "generator and trainer disagree: check that the server has the same weights and dtype, sync more often; with "
       "structured output its log-probs are those of the constrained texts, and differ by nature"},
      {"sampling/importance_sampling_ratio/raw_min", 0.1, none, 0.01, none, 10,
       "completions come from weights that are long gone: sync more often", false, nullptr, nullptr, nullptr, nullptr,
       nullptr, 1e-6,
       "the generator draws from another distribution than the policy's, as with structured output "
       "(trl.vllm_structured_outputs_regex, generation_kwargs), so the correction takes nearly all completions away: "
       "set "
       "trl.vllm_importance_sampling_correction: false; without structured output look for another model or template "
       "on "
       "the server"},
      {"clip_ratio/region_mean", 0.0, 0.1, -none, 0.3, 10,
       "most of the update is clipped away: lower learning_rate or num_iterations, or widen epsilon"},
      {"completions/clipped_ratio", 0.0, 0.3, -none, 0.8, 10,
       "completions are cut before they end: raise max_completion_length, or teach shorter answers"},
      {.metric = "completions/mean_length",
       .healthy_from = 0.0,
       .healthy_to = 0.6,
       .alarm_below = -none,
       .alarm_above = 0.8,
       .window = 20,
       .advice = "completions grow steadily towards the longest there are, which is often a reward that pays for "
                 "length: read "
                 "some, bound or punish length (soft_overlong_punishment_reward)",
       .towards = "completions/max_length"},
  };
  return rules;
}

RLALGO_INLINE bool detail::matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view after = pattern.substr(star + 1);
  return name.size() >= before.size() + after.size() && name.starts_with(before) && name.ends_with(after);
}

RLALGO_INLINE double detail::growth(std::span<const double> values, double limit) {
  const std::size_t quarter = values.size() / 4;
  if (quarter == 0 || limit <= 0.0) return 0.0;
  double means[4];
  for (std::size_t q = 0; q < 4; ++q) {
    const auto part = values.subspan(values.size() - (4 - q) * quarter, quarter);
    means[q] = std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(quarter);
    if (q > 0 && means[q] <= means[q - 1]) return 0.0;
  }
  return means[3] >= 1.25 * means[0] ? means[3] / limit : 0.0;
}

RLALGO_INLINE double detail::solved_reward(std::span<const Record> records) {
  constexpr std::size_t window = 10;
  const auto newest = records.subspan(records.size() - std::min(window, records.size()));
  const auto mean_of = [&](const std::string& name) {
    double sum = 0.0, count = 0.0;
    for (const Record& record : newest)
      if (const double value = record.value(name); std::isfinite(value)) sum += value, count += 1.0;
    return count > 0.0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
  };
  double largest = 0.0;
  std::set<std::string> functions;
  for (const Record& record : newest)
    for (const auto& [name, value] : record.values)
      if (matches("rewards/*/mean", name)) functions.insert(name);
  for (const std::string& name : functions) largest = std::fmax(largest, mean_of(name));
  const double reward = mean_of("reward");
  if (functions.empty()) largest = reward;
  return largest >= 0.9 && reward >= 0.85 ? reward : std::numeric_limits<double>::quiet_NaN();
}

RLALGO_INLINE bool detail::tells_reward(std::string_view name) {
  return name == "reward" || name == "ebft/mean_reward";
}

RLALGO_INLINE std::vector<HealthFinding> health(std::span<const Record> records) {
  std::vector<std::string> names;
  for (const Record& record : records)
    for (const auto& [name, value] : record.values)
      if (std::isfinite(value) && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<HealthFinding> out;
  if (std::none_of(names.begin(), names.end(), detail::tells_reward)) return out;
  const double solved = detail::solved_reward(records);
  const auto has = [&](const char* metric) { return std::find(names.begin(), names.end(), metric) != names.end(); };
  for (const HealthRule& rule : health_rules()) {
    if ((rule.unless != nullptr && has(rule.unless)) || (rule.only != nullptr && !has(rule.only))) continue;
    for (const std::string& name : names) {
      if (!detail::matches(rule.metric, name)) continue;
      double sum = 0.0, judged = 0.0;
      std::size_t count = 0;
      double limit = 0.0;
      std::vector<double> window;  // the newest first
      for (auto record = records.rbegin(); record != records.rend() && count < rule.window; ++record)
        if (const double value = record->value(name); std::isfinite(value)) {
          sum += value;
          judged += rule.magnitude ? std::abs(value) : value;
          ++count;
          window.push_back(value);
          if (rule.towards != nullptr) limit = std::fmax(limit, record->value(rule.towards));
        }
      judged /= static_cast<double>(count);
      if (rule.towards != nullptr) {
        std::reverse(window.begin(), window.end());
        judged = detail::growth(window, limit);
      }
      HealthFinding finding{.metric = name, .value = sum / static_cast<double>(count), .rule = &rule, .advice = {}};
      const bool high = judged > rule.healthy_to;
      finding.advice = high && rule.above != nullptr ? rule.above : rule.advice;
      // Of what is too high a solved task is no cause, but for groups that agree.
      if (rule.solved != nullptr && std::isfinite(solved) && (!high || rule.above == nullptr))
        finding.advice = "reward " + format_number(solved) + ": " + rule.solved;
      if (rule.extreme_advice != nullptr && judged < rule.extreme) finding.advice = rule.extreme_advice;
      if (judged < rule.healthy_from || judged > rule.healthy_to) finding.state = HealthFinding::State::watch;
      if (count >= rule.window && (judged < rule.alarm_below || judged > rule.alarm_above))
        finding.state = HealthFinding::State::alarm;
      out.push_back(std::move(finding));
    }
  }
  return out;
}

RLALGO_INLINE void HealthWatch::on_record(const Record& record) {
  if (std::any_of(record.values.begin(), record.values.end(),
                  [](const auto& entry) { return detail::tells_reward(entry.first) && std::isfinite(entry.second); }))
    records_.push_back(record);
  if (records_.size() > longest_window) records_.erase(records_.begin());
  for (const HealthFinding& finding : health(records_))
    if (finding.state == HealthFinding::State::alarm) warn(finding, finding.rule->window);
}

RLALGO_INLINE void HealthWatch::warn(const HealthFinding& finding, std::size_t records) {
  if (!warned_.insert(finding.metric).second) return;
  out_ << "warning: " << finding.metric << " is " << format_number(finding.value) << " on average over the last "
       << records << " records: " << finding.advice << "\n";
}

RLALGO_INLINE void HealthWatch::on_finish() {
  for (const HealthFinding& finding : health(records_)) {
    const HealthRule& rule = *finding.rule;
    if (rule.towards != nullptr) continue;
    std::size_t count = 0, beyond = 0;
    for (const Record& record : records_) {
      const double value = record.value(finding.metric);
      if (!std::isfinite(value)) continue;
      const double judged = rule.magnitude ? std::abs(value) : value;
      ++count;
      beyond += judged < rule.alarm_below || judged > rule.alarm_above ? 1 : 0;
    }
    if (count >= fewest_records && count < rule.window && beyond == count) warn(finding, count);
  }
}

}  // namespace rlalgo::run
