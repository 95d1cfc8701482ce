// A reward that is already there: a number in a column of the row. What an environment gave is environment_reward.
//
// null, a missing column or anything but a number: NaN, not applicable; so is a row of others (RowsOf).
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/functor.hpp>

namespace rlalgo::reward {

// The rows that have one of `values`, texts, in a column; without a column all rows.
struct RowsOf {
  std::string column = {};
  std::vector<std::string> values = {};

  [[nodiscard]] bool have(const Json& row) const {
    if (column.empty()) return true;
    const auto value = row.find(column);
    return value != row.end() && value->is_string() &&
           std::find(values.begin(), values.end(), value->get_ref<const std::string&>()) != values.end();
  }
};

[[nodiscard]] inline std::shared_ptr<RewardFunction> column(std::string name, std::string column, RowsOf rows = {}) {
  return from(std::move(name), [column = std::move(column), rows = std::move(rows)](const Sample& sample) {
    const auto value = sample.columns.find(column);
    if (value == sample.columns.end() || !value->is_number() || !rows.have(sample.columns))
      return std::numeric_limits<double>::quiet_NaN();
    return value->get<double>();
  });
}

}  // namespace rlalgo::reward
