// Is a policy-gradient run well? Thresholds of its metrics, with what to do when one is crossed.
//
// A rule looks at the mean of a metric over the last `window` records that have it: inside `healthy` the run is well,
// beyond `alarm` something is wrong, between them it is worth watching. Rules speak only of runs with rewards (a record
// with the metric `reward` or `ebft/mean_reward`), and of metrics that the run has. `*` in a name stands for any text.
// A rule with `towards` looks at growth instead: where the means of the window's quarters rise, one after the other and by a
// quarter in all, at the last of them as a share of the largest value of `towards` in the window; elsewhere at 0.
// Source of the numbers: axolotl's training_stability guide for GRPO, and its page on EBFT for ebft/….
#pragma once

#include <cstddef>
#include <iostream>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

struct HealthRule {
  const char* metric;
  double healthy_from, healthy_to;
  double alarm_below, alarm_above;  // infinite: no such alarm
  std::size_t window;               // records
  const char* advice;
  bool magnitude = false;         // judged by the mean of |value|: the sign is a matter of taste
  const char* unless = nullptr;   // says nothing of a run that has this metric
  const char* only = nullptr;     // says nothing of a run that has it not
  const char* towards = nullptr;  // judged by the growth towards this metric
  const char* above = nullptr;    // advice for values above; `advice` is for those below then
  const char* solved = nullptr;   // advice where nearly every completion is right already
  double extreme = 0.0;           // values below it have a cause of their own
  const char* extreme_advice = nullptr;
};

struct HealthFinding {
  enum class State { well, watch, alarm };
  std::string metric;
  double value = 0.0;  // mean over the window
  State state = State::well;
  const HealthRule* rule = nullptr;
  std::string advice;  // for the side it is on, and for what the run is like
};

[[nodiscard]] std::span<const HealthRule> health_rules();

namespace detail {

// `*` stands for any text.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

// What a rule with `towards` judges of its window's values, the newest last.
[[nodiscard]] double growth(std::span<const double> values, double limit);

// The mean reward of the newest records if nearly every completion earns what there is: a reward function at 0.9 or more, and
// all of them together at 0.85 or more. NaN: it is not so.
[[nodiscard]] double solved_reward(std::span<const Record> records);

// Whether a metric says that a run has rewards: of completions, or of blocks.
[[nodiscard]] bool tells_reward(std::string_view name);

}  // namespace detail

// One finding for each rule and metric of the run, in the order of the rules. A run shorter than a rule's window is
// judged by what there is, but an alarm needs the whole window.
[[nodiscard]] std::vector<HealthFinding> health(std::span<const Record> records);

// Warns once about each metric whose rule raises an alarm. A run that ends before a rule's window is full, after three records or
// more, is warned of at its end where every record was beyond the rule's alarm.
class HealthWatch : public Observer {
 public:
  explicit HealthWatch(std::ostream& out = std::cerr) : out_(out) {}

  RLALGO_INLINE void on_record(const Record& record) override;
  RLALGO_INLINE void on_finish() override;

 private:
  static constexpr std::size_t longest_window = 20, fewest_records = 3;
  void warn(const HealthFinding& finding, std::size_t records);

  std::ostream& out_;
  std::vector<Record> records_;
  std::set<std::string> warned_;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/health_impl.hpp>
#endif
