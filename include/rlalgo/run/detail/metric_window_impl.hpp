// Definitions of metric_window.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/metric_window.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

RLALGO_INLINE void MetricWindow::add(const StepResult& result, double step_seconds) {
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

RLALGO_INLINE Record MetricWindow::flush(std::int64_t step, double epoch) {
  Record record{step, epoch, {}};
  for (const bool times : {false, true})
    for (const Entry& e : entries_)
      if (e.name.starts_with("time/") == times)
        record.values.emplace_back(e.name, e.count == 0 ? no_value : e.sum / static_cast<double>(e.count));
  entries_.clear();
  steps_ = 0;
  return record;
}

RLALGO_INLINE Json MetricWindow::state() const {
  Json out = {{"steps", steps_}, {"entries", Json::array()}};
  for (const Entry& e : entries_) out["entries"].push_back({e.name, encode(e.sum), e.count});
  return out;
}

RLALGO_INLINE void MetricWindow::restore(const Json& state) {
  entries_.clear();
  steps_ = state.at("steps").get<std::int64_t>();
  for (const Json& e : state.at("entries"))
    entries_.push_back({e.at(0).get<std::string>(), decode(e.at(1)), e.at(2).get<std::int64_t>()});
}

RLALGO_INLINE void MetricWindow::mean(const std::string& name, double value) {
  Entry& e = entry(name);
  if (std::isnan(value)) return;
  e.sum += value;
  ++e.count;
}

RLALGO_INLINE void MetricWindow::last(const std::string& name, double value) {
  Entry& e = entry(name);
  if (std::isnan(value)) return;
  e.sum = value;
  e.count = 1;
}

RLALGO_INLINE MetricWindow::Entry& MetricWindow::entry(const std::string& name) {
  for (Entry& e : entries_)
    if (e.name == name) return e;
  return entries_.emplace_back(Entry{name});
}

RLALGO_INLINE Json MetricWindow::encode(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

RLALGO_INLINE double MetricWindow::decode(const Json& value) {
  if (!value.is_string()) return value.get<double>();
  return value == "inf" ? HUGE_VAL : -HUGE_VAL;
}

}  // namespace rlalgo::run
