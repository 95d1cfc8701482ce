// The error of tensors that do not fit an operation of a team.
#pragma once

#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::distributed::detail {

[[noreturn]] inline void raise_misfit(const std::string& operation, const std::string& found,
                                      const std::string& expected) {
  core::raise(
      "distributed", 11,
      {.what = "tensors do not fit an operation of a team", .found = found, .expected = expected, .where = operation});
}

}  // namespace rlalgo::distributed::detail
