// Weight sync for a generator that reads copies, so that it may generate while the optimizer writes.
//
// publish(v) copies what is trained, on the trainer's thread, and makes it what the next generate() of a SnapshotEngine
// over the same WeightSnapshots reads (inference/weight_snapshots.hpp). A call that is under way keeps the version it
// began with, and its completions say which. The same version again copies nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

class SnapshotWeights {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::snapshot; }

  explicit SnapshotWeights(std::shared_ptr<inference::WeightSnapshots> snapshots)
      : snapshots_(std::move(snapshots)), version_(std::make_shared<std::atomic<std::int64_t>>(-1)) {}

  Published publish(std::int64_t version) {
    if (version == *version_) return {.version = version};
    const os::Stopwatch watch;
    snapshots_->publish(version);
    *version_ = version;
    return {.version = version,
            .status = Published::Status::copied,
            .bytes = static_cast<std::int64_t>(snapshots_->copied_bytes()),
            .seconds = watch.seconds()};
  }
  // The version published last; −1 before the first publish().
  [[nodiscard]] std::int64_t version() const noexcept { return *version_; }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [version = version_] { return version->load(); };
  }

 private:
  std::shared_ptr<inference::WeightSnapshots> snapshots_;
  std::shared_ptr<std::atomic<std::int64_t>> version_;
};

static_assert(SyncPolicy<SnapshotWeights>);

}  // namespace rlalgo::sync
