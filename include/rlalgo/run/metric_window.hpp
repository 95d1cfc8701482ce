// Metrics of the optimizer steps since the last log, averaged when they are logged.
//
//   logged value = mean over the steps of the window whose value is not NaN;   all NaN → NaN (null in metrics.jsonl)
//
// Each optimizer step counts once, whatever its number of tokens, as in TRL. Overwritten instead of averaged: metrics
// of kind `last` (num_tokens), learning_rate and grad_norm (those of the newest step, as transformers logs them).
// time/… are mean seconds per optimizer step, so they do not depend on logging_steps. An absent metric is not in the
// record: with num_iterations > 1 the reward metrics appear only in records of windows that generated.
//
// The window is part of a checkpoint: a run resumed between two logs prints the same averages as one never interrupted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

class MetricWindow {
 public:
  void add(const StepResult& result, double step_seconds);

  [[nodiscard]] bool empty() const noexcept { return steps_ == 0; }

  // The averages in print order (time/… at the end); the window is empty afterwards.
  [[nodiscard]] Record flush(std::int64_t step, double epoch);

  [[nodiscard]] Json state() const;
  void restore(const Json& state);

 private:
  struct Entry {
    std::string name;
    double sum = 0.0;        // over the values that are not NaN; the newest value itself for an overwritten metric
    std::int64_t count = 0;  // how many; 1 for an overwritten metric
  };

  void mean(const std::string& name, double value);
  void last(const std::string& name, double value);
  Entry& entry(const std::string& name);
  // JSON has no infinities.
  static Json encode(double value);
  static double decode(const Json& value);

  std::vector<Entry> entries_;
  std::int64_t steps_ = 0;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/metric_window_impl.hpp>
#endif
