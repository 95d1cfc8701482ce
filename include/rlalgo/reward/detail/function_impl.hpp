// Definitions of function.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/metric_names.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::reward {

RLALGO_INLINE void join_logs(const std::vector<std::pair<std::size_t, RewardLog>>& parts, RewardLog& out) {
  std::vector<std::string> columns;
  std::size_t first = 0;
  for (const auto& [rows, log] : parts) {
    for (const std::size_t row : log.failed) out.failed.push_back(first + row);
    first += rows;
    out.metrics.insert(out.metrics.end(), log.metrics.begin(), log.metrics.end());
    out.own_metrics.insert(out.own_metrics.end(), log.own_metrics.begin(), log.own_metrics.end());
    out.warnings.insert(out.warnings.end(), log.warnings.begin(), log.warnings.end());
    for (const auto& [column, entries] : log.extras)
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
  }
  for (const std::string& column : columns) {
    Json entries = Json::array();
    for (const auto& [rows, log] : parts) {
      const auto found =
          std::find_if(log.extras.rbegin(), log.extras.rend(), [&](const auto& e) { return e.first == column; });
      if (found == log.extras.rend()) {
        for (std::size_t i = 0; i < rows; ++i) entries.push_back(nullptr);
        continue;
      }
      for (const Json& entry : found->second) entries.push_back(entry);
    }
    out.extras.emplace_back(column, std::move(entries));
  }
}

RLALGO_INLINE std::string detail::number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

RLALGO_INLINE std::vector<double> detail::values_of(RewardFunction& function, const RewardCall& call) {
  std::vector<double> values;
  const std::size_t logged_before = call.log == nullptr ? 0 : call.log->extras.size();
  const std::size_t metrics_before = call.log == nullptr ? 0 : call.log->metrics.size();
  try {
    values = function(call);
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& e) {
    core::raise("reward", 2,
                {.what = "the reward function '" + function.name() + "' threw",
                 .found = e.what(),
                 .where = "step " + std::to_string(call.step),
                 .remedy = "return NaN for a completion that cannot be scored"});
  }
  if (values.size() != call.size())
    core::raise("reward", 1,
                {.what = "the reward function '" + function.name() + "' returned the wrong number of values",
                 .found = std::to_string(values.size()),
                 .expected = std::to_string(call.size()) + ", one per completion",
                 .where = "step " + std::to_string(call.step)});
  if (call.log == nullptr) return values;
  for (std::size_t k = metrics_before; k < call.log->metrics.size(); ++k) {
    std::string& name = call.log->metrics[k].first;
    if (!core::is_run_metric(name)) continue;
    const std::string shown = core::logged_name(name);
    std::string warning = "the reward function '" + function.name() + "' logs a metric by the name '" + name +
                          "', which is the run's own: it stands as " + shown;
    if (std::find(call.log->warnings.begin(), call.log->warnings.end(), warning) == call.log->warnings.end())
      call.log->warnings.push_back(std::move(warning));
    name = shown;
  }
  for (std::size_t k = logged_before; k < call.log->extras.size(); ++k) {
    const auto& [column, entries] = call.log->extras[k];
    if (!entries.is_array() || entries.size() != call.size())
      core::raise("reward", 4,
                  {.what = "the reward function '" + function.name() + "' logged a column of the wrong length",
                   .found = std::to_string(entries.size()) + " entries in '" + column + "'",
                   .expected = std::to_string(call.size()) + ", one per completion",
                   .where = "step " + std::to_string(call.step)});
  }
  return values;
}

RLALGO_INLINE std::vector<double> evaluate(RewardFunction& function, const RewardCall& call) {
  std::vector<double> values = detail::values_of(function, call);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!is_usable(values[i]))
      core::raise(
          "reward", 10,
          {.what = "the reward function '" + function.name() + "' returned a value that no advantage can be made of",
           .found = detail::number_text(values[i]) + " for completion " + std::to_string(i + 1) + " of " +
                    std::to_string(values.size()),
           .expected = "a finite number up to 3.4e38, or NaN (None) for a completion that cannot be scored",
           .where = "step " + std::to_string(call.step)});
  return values;
}

}  // namespace rlalgo::reward
