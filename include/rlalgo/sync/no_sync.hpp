// No weight sync: for samplers that generate nothing. It reaches no generator.
#pragma once

#include <cstdint>
#include <functional>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

struct NoSync {
  static constexpr bool reaches(inference::WeightSource) { return false; }
  Published publish(std::int64_t version) { return {.version = version}; }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{0}; };
  }
};

static_assert(SyncPolicy<NoSync>);

}  // namespace rlalgo::sync
