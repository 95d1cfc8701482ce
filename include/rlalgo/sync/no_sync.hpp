// No weight sync: for samplers that generate nothing.
#pragma once

#include <cstdint>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

struct NoSync {
  static constexpr bool serves_generator = false;
  void publish(std::int64_t /*version*/) {}
};

static_assert(SyncPolicy<NoSync>);

}  // namespace rlalgo::sync
