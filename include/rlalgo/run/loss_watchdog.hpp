// Ends a run whose loss stays above a threshold.
//
//   at the end of every optimizer step, of the newest record in the logs (that of the step itself comes after this):
//   loss > threshold    one more violation; as many as `patience` end the run
//   loss ≤ threshold    none any more
//   no loss in it       (an evaluation's) as many as before
//
// Source: axolotl 0.19, LossWatchDogCallback (utils/callbacks/__init__.py). A record that covers several steps counts once for
// each step until the next one. Departures: axolotl adds it to supervised runs alone; a resumed run goes on counting, so that
// it ends where it would have ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

struct LossWatchdogConfig {
  std::optional<double> threshold{};  // unset: nothing is watched
  std::int64_t patience = 3;          // violations in a row
};

class LossWatchdog {
 public:
  explicit LossWatchdog(LossWatchdogConfig config) : config_(config) {}

  [[nodiscard]] bool on() const { return config_.threshold.has_value(); }

  // A record was logged.
  void see(const Record& record) {
    latest_.reset();
    for (const auto& [name, value] : record.values)
      if (name == "loss") latest_ = value;
  }

  void step_ended() {
    if (!on() || !latest_) return;
    violations_ = *latest_ > *config_.threshold ? violations_ + 1 : 0;
  }

  // Whether the run ends.
  [[nodiscard]] bool barks() const { return on() && violations_ >= config_.patience; }

  [[nodiscard]] std::string reason() const {
    return "the loss stayed above loss_watchdog_threshold " + format_number(*config_.threshold) + " for " +
           std::to_string(violations_) + " steps" + (latest_ ? ", now " + format_number(*latest_) : "");
  }

  // Of a checkpoint.
  [[nodiscard]] Json state() const { return {{"threshold", *config_.threshold}, {"violations", violations_}}; }
  // Violations of another threshold are none.
  void restore(const Json& state) {
    if (on() && state.at("threshold").get<double>() == *config_.threshold)
      violations_ = state.at("violations").get<std::int64_t>();
  }

 private:
  LossWatchdogConfig config_;
  std::optional<double> latest_;
  std::int64_t violations_ = 0;
};

}  // namespace rlalgo::run
