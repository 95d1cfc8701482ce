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

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

class MetricWindow {
 public:
  void add(const StepResult& result, double step_seconds) {
    mean("loss", result.loss);
    last("grad_norm", result.grad_norm);
    last("learning_rate", result.learning_rate);
    const auto values = result.metrics.values();
    const auto& entries = result.metrics.entries();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (entries[i].kind == core::Metrics::Kind::last)
        last(values[i].first, values[i].second);
      else
        mean(values[i].first, values[i].second);
    }
    for (const auto& [name, seconds] : result.seconds) mean("time/" + name, seconds);
    mean("time/step", step_seconds);
    ++steps_;
  }

  [[nodiscard]] bool empty() const noexcept { return steps_ == 0; }

  // The averages in print order (time/… at the end); the window is empty afterwards.
  [[nodiscard]] Record flush(std::int64_t step, double epoch) {
    Record record{step, epoch, {}};
    for (const bool times : {false, true})
      for (const Entry& e : entries_)
        if (e.name.starts_with("time/") == times)
          record.values.emplace_back(e.name, e.count == 0 ? no_value : e.sum / static_cast<double>(e.count));
    entries_.clear();
    steps_ = 0;
    return record;
  }

  [[nodiscard]] Json state() const {
    Json out = {{"steps", steps_}, {"entries", Json::array()}};
    for (const Entry& e : entries_) out["entries"].push_back({e.name, encode(e.sum), e.count});
    return out;
  }
  void restore(const Json& state) {
    entries_.clear();
    steps_ = state.at("steps").get<std::int64_t>();
    for (const Json& e : state.at("entries"))
      entries_.push_back({e.at(0).get<std::string>(), decode(e.at(1)), e.at(2).get<std::int64_t>()});
  }

 private:
  struct Entry {
    std::string name;
    double sum = 0.0;        // over the values that are not NaN; the newest value itself for an overwritten metric
    std::int64_t count = 0;  // how many; 1 for an overwritten metric
  };

  void mean(const std::string& name, double value) {
    Entry& e = entry(name);
    if (std::isnan(value)) return;
    e.sum += value;
    ++e.count;
  }
  void last(const std::string& name, double value) {
    Entry& e = entry(name);
    if (std::isnan(value)) return;
    e.sum = value;
    e.count = 1;
  }
  Entry& entry(const std::string& name) {
    for (Entry& e : entries_)
      if (e.name == name) return e;
    return entries_.emplace_back(Entry{name});
  }
  // JSON has no infinities.
  static Json encode(double value) {
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    return value;
  }
  static double decode(const Json& value) {
    if (!value.is_string()) return value.get<double>();
    return value == "inf" ? HUGE_VAL : -HUGE_VAL;
  }

  std::vector<Entry> entries_;
  std::int64_t steps_ = 0;
};

}  // namespace rlalgo::run
