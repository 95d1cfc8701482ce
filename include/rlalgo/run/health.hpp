// Is a policy-gradient run well? Thresholds of its metrics, with what to do when one is crossed.
//
// A rule looks at the mean of a metric over the last `window` records that have it: inside `healthy` the run is well,
// beyond `alarm` something is wrong, between them it is worth watching. Rules speak only of runs with rewards (a record
// with the metric `reward`), and of metrics that the run has. `*` in a name stands for any text.
// Source of the numbers: axolotl's training_stability guide for GRPO.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

struct HealthRule {
  const char* metric;
  double healthy_from, healthy_to;
  double alarm_below, alarm_above;  // infinite: no such alarm
  std::size_t window;               // records
  const char* advice;
  bool magnitude = false;  // judged by the mean of |value|: the sign is a matter of taste
};

struct HealthFinding {
  enum class State { well, watch, alarm };
  std::string metric;
  double value = 0.0;  // mean over the window
  State state = State::well;
  const HealthRule* rule = nullptr;
};

[[nodiscard]] inline std::span<const HealthRule> health_rules() {
  constexpr double none = std::numeric_limits<double>::infinity();
  static const HealthRule rules[] = {
      {"rewards/*/mean", 0.15, none, 1e-12, none, 20,
       "the reward is always 0: call the function on a few completions by hand; check the columns it reads, the prompt "
       "template and max_completion_length",
       true},
      {"reward_std", 1e-8, none, 1e-8, none, 10,
       "all completions get the same reward, so nothing is learned: make the reward finer, the task easier, or sample "
       "warmer"},
      {"frac_reward_zero_std", 0.0, 0.8, -none, 0.999, 10,
       "no group has completions of different reward: raise num_generations or temperature, or choose prompts that are "
       "sometimes solved"},
      {"grad_norm", 0.0, 1.0, -none, 10.0, 10, "steps are unstable: lower learning_rate, keep max_grad_norm at 1"},
      {"entropy", 0.05, 0.5, 0.01, 1.0, 10,
       "below: the policy collapsed (temperature 0.8 to 1, lower learning_rate, beta above 0, 16 or more generations, "
       "entropy_coef); above: it does not converge (lower the temperature, check the template)"},
      {"kl", 0.0, 0.5, -none, 2.0, 10, "the policy left its reference: raise beta, lower learning_rate"},
      {"sampling/sampling_logp_difference/mean", 0.0, 0.1, -none, 1.0, 10,
       "generator and trainer disagree: check that the server has the same weights and dtype, sync more often"},
      {"sampling/importance_sampling_ratio/min", 0.1, none, 0.01, none, 10,
       "completions come from weights that are long gone: sync more often"},
      {"clip_ratio/region_mean", 0.0, 0.1, -none, 0.3, 10,
       "most of the update is clipped away: lower learning_rate or num_iterations, or widen epsilon"},
      {"completions/clipped_ratio", 0.0, 0.3, -none, 0.8, 10,
       "completions are cut before they end: raise max_completion_length, or teach shorter answers"},
  };
  return rules;
}

namespace detail {

// `*` stands for any text.
[[nodiscard]] inline bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view after = pattern.substr(star + 1);
  return name.size() >= before.size() + after.size() && name.starts_with(before) && name.ends_with(after);
}

}  // namespace detail

// One finding for each rule and metric of the run, in the order of the rules. A run shorter than a rule's window is
// judged by what there is, but an alarm needs the whole window.
[[nodiscard]] inline std::vector<HealthFinding> health(std::span<const Record> records) {
  std::vector<std::string> names;
  for (const Record& record : records)
    for (const auto& [name, value] : record.values)
      if (std::isfinite(value) && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<HealthFinding> out;
  if (std::find(names.begin(), names.end(), "reward") == names.end()) return out;
  for (const HealthRule& rule : health_rules())
    for (const std::string& name : names) {
      if (!detail::matches(rule.metric, name)) continue;
      double sum = 0.0, judged = 0.0;
      std::size_t count = 0;
      for (auto record = records.rbegin(); record != records.rend() && count < rule.window; ++record)
        if (const double value = record->value(name); std::isfinite(value)) {
          sum += value;
          judged += rule.magnitude ? std::abs(value) : value;
          ++count;
        }
      judged /= static_cast<double>(count);
      HealthFinding finding{.metric = name, .value = sum / static_cast<double>(count), .rule = &rule};
      if (judged < rule.healthy_from || judged > rule.healthy_to) finding.state = HealthFinding::State::watch;
      if (count >= rule.window && (judged < rule.alarm_below || judged > rule.alarm_above))
        finding.state = HealthFinding::State::alarm;
      out.push_back(std::move(finding));
    }
  return out;
}

// Warns once about each metric whose rule raises an alarm.
class HealthWatch : public Observer {
 public:
  explicit HealthWatch(std::ostream& out = std::cerr) : out_(out) {}

  void on_record(const Record& record) override {
    if (std::isfinite(record.value("reward"))) records_.push_back(record);
    if (records_.size() > longest_window) records_.erase(records_.begin());
    for (const HealthFinding& finding : health(records_))
      if (finding.state == HealthFinding::State::alarm && warned_.insert(finding.metric).second)
        out_ << "warning: " << finding.metric << " is " << format_number(finding.value) << " on average over the last "
             << finding.rule->window << " records: " << finding.rule->advice << "\n";
  }

 private:
  static constexpr std::size_t longest_window = 20;
  std::ostream& out_;
  std::vector<Record> records_;
  std::set<std::string> warned_;
};

}  // namespace rlalgo::run
