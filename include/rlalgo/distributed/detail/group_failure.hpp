// The error of a collective operation that this room's own groups give up.
#pragma once

#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::distributed::detail {

// Seconds allowed where who waits for the operation has the deadline.
inline constexpr double unbounded = 30.0 * 24 * 3600;

[[noreturn]] inline void group_failed(const std::string& operation, const std::string& found, double seconds) {
  core::raise(
      "distributed", 4,
      {.what = "a collective operation failed",
       .found = found,
       .where = seconds < unbounded ? operation + ", " + std::to_string(static_cast<int>(seconds)) + " s allowed"
                                    : operation});
}

}  // namespace rlalgo::distributed::detail
