// What happens when a reward function fails: the run stops, or the completions it failed for count as unscored or 0.
//
// A function that raises is called again on halves of its rows until the completions that it fails for stand alone, so
// that one bad row does not cost the others their reward (at most 64 calls a batch). (Values that a function takes from
// the whole batch are then those of the part.) A process that hung or died is not asked again: its whole call failed.
// A value that is infinite, or too large for float32, is a failure of its own completion.
// Failures are warned of in one line per step, and metric rewards/<name>/failed is the share of completions without a
// value. Policy `error` passes the error on and counts nothing.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::reward {

enum class OnFailure { error, nan, zero };

class Guarded final : public RewardFunction {
 public:
  Guarded(std::shared_ptr<RewardFunction> function, OnFailure policy)
      : function_(std::move(function)), policy_(policy) {}
  [[nodiscard]] std::string name() const override { return function_->name(); }

  std::vector<double> operator()(const RewardCall& call) override {
    if (policy_ == OnFailure::error) return evaluate(*function_, call);
    RewardLog log;
    Failures failures;
    std::vector<double> values = attempt(call.rows(0, call.size(), &log), log, failures);
    if (call.log == nullptr) return values;
    if (failures.rows > 0 && std::exchange(warned_step_, call.step) != call.step)
      log.warnings.push_back("the reward '" + name() + "' failed for " + std::to_string(failures.rows) + " of " +
                             std::to_string(call.size()) + " completions, which count as " +
                             (policy_ == OnFailure::nan ? "not scored" : "0") + ": " + failures.first);
    if (call.size() > 0)
      log.own_metrics.emplace_back("rewards/" + name() + "/failed",
                                   static_cast<double>(failures.rows) / static_cast<double>(call.size()));
    call.log->append(std::move(log));
    return values;
  }

 private:
  struct Failures {
    std::size_t rows = 0;
    std::size_t calls = 0;
    std::string first;
  };

  static constexpr std::size_t most_calls = 64;  // of one batch, on the search for the rows that fail

  // Only what the function itself threw can be a matter of single rows.
  static bool may_be_one_row(const core::Error& e) {
    return (e.room() == "reward" && e.number() == 2) || (e.room() == "remote" && e.number() >= 3 && e.number() <= 5);
  }

  std::vector<double> attempt(const RewardCall& call, RewardLog& log, Failures& failures) {
    RewardLog own;
    ++failures.calls;
    try {
      std::vector<double> values = detail::values_of(*function_, call.rows(0, call.size(), &own));
      log = std::move(own);
      for (double& value : values) {
        if (is_usable(value)) continue;
        fail(1, "it returned " + detail::number_text(value), failures);
        value = instead();
      }
      return values;
    } catch (const core::UsageError&) {
      throw;
    } catch (const os::Interrupted&) {
      throw;
    } catch (const core::Error& e) {
      log.warnings = std::move(own.warnings);
      if (call.size() > 1 && may_be_one_row(e) && failures.calls < most_calls) return halves(call, log, failures);
      fail(call.size(), first_line(e.what()), failures);
      return std::vector<double>(call.size(), instead());
    }
  }

  static void fail(std::size_t rows, const std::string& why, Failures& failures) {
    failures.rows += rows;
    if (failures.first.empty()) failures.first = why;
  }

  [[nodiscard]] double instead() const {
    return policy_ == OnFailure::nan ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  }

  std::vector<double> halves(const RewardCall& call, RewardLog& log, Failures& failures) {
    const std::size_t middle = call.size() / 2;
    std::vector<std::pair<std::size_t, RewardLog>> logs(2);
    std::vector<double> values = attempt(call.rows(0, middle, nullptr), logs[0].second, failures);
    const std::vector<double> rest = attempt(call.rows(middle, call.size(), nullptr), logs[1].second, failures);
    values.insert(values.end(), rest.begin(), rest.end());
    logs[0].first = middle;
    logs[1].first = call.size() - middle;
    join_logs(logs, log);
    return values;
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  std::shared_ptr<RewardFunction> function_;
  OnFailure policy_;
  std::int64_t warned_step_ = -1;  // a step may call several times
};

}  // namespace rlalgo::reward
