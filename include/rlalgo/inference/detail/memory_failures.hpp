// Which failures of a pass are for want of memory: one that needs less may go on.
#pragma once

#include <exception>
#include <new>

#include <rlalgo/core/error.hpp>

namespace rlalgo::inference::detail {

[[nodiscard]] inline bool is_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* const known = dynamic_cast<const core::Error*>(&error);
  return known != nullptr && known->room() == "tensor" && known->number() == 14;
}

}  // namespace rlalgo::inference::detail
