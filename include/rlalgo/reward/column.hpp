// A reward that is already there: a number in a column of the row. What an environment gave is environment_reward.
//
// null, a missing column or anything but a number: NaN, not applicable.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/functor.hpp>

namespace rlalgo::reward {

[[nodiscard]] inline std::shared_ptr<RewardFunction> column(std::string name, std::string column) {
  return from(std::move(name), [column = std::move(column)](const Sample& sample) {
    const auto value = sample.columns.find(column);
    if (value == sample.columns.end() || !value->is_number()) return std::numeric_limits<double>::quiet_NaN();
    return value->get<double>();
  });
}

}  // namespace rlalgo::reward
