// The error of a collective operation that this room's own groups give up.
#pragma once

#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::distributed::detail {

[[noreturn]] inline void group_failed(const std::string& operation, const std::string& found, double seconds) {
  core::raise("distributed", 4,
              {.what = "a collective operation failed",
               .found = found,
               .where = operation + ", " + std::to_string(static_cast<int>(seconds)) + " s allowed"});
}

}  // namespace rlalgo::distributed::detail
