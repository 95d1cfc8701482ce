// Weight sync of a rank other than 0, where rank 0 alone publishes to the server: it only keeps the version.
//
// Of several ranks with one server, rank 0 asks it and publishes to it; the others get their completions from rank 0
// (sampler/rollouts.hpp), which say their versions. A publish of rank 0 that fails fails all at their next meeting.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

class FirstRankSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }

  Published publish(std::int64_t version) {
    *version_ = version;
    return {.version = version};
  }
  // The version noted last; −1 before the first publish().
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [version = version_] { return version->load(); };
  }

 private:
  std::shared_ptr<std::atomic<std::int64_t>> version_ = std::make_shared<std::atomic<std::int64_t>>(-1);
};

static_assert(SyncPolicy<FirstRankSync>);

}  // namespace rlalgo::sync
