// Weight sync for a generator that reads the trainer's own tensors: nothing is copied, only stale caches are dropped.
//
// publish(v) stores v and calls `weights_changed` once per new version, before the next generation can start. What the
// generator derived from the weights (prefix caches, packed copies) must be thrown away there. `version_source()` is
// what a sampler asks before it generates; it outlives the policy and follows it through copies and moves.
// `release` is called when training begins: what the generator keeps will be stale before it is asked again, and training
// has a use for the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

class SharedWeights {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::shared; }
  static constexpr Hooks hooks{.training_begins = true};

  SharedWeights() = default;
  explicit SharedWeights(std::function<void()> weights_changed, std::function<void()> release = {})
      : weights_changed_(std::move(weights_changed)), release_(std::move(release)) {}

  Published publish(std::int64_t version) {
    if (version == *version_) return {.version = version};
    *version_ = version;
    if (weights_changed_) weights_changed_();
    return {.version = version, .status = Published::Status::in_place};
  }
  void training_begins() {
    if (release_) release_();
  }
  // The version in force; −1 before the first publish().
  [[nodiscard]] std::int64_t version() const noexcept { return *version_; }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [version = version_] { return *version; };
  }

 private:
  std::function<void()> weights_changed_, release_;
  std::shared_ptr<std::int64_t> version_ = std::make_shared<std::int64_t>(-1);
};

static_assert(SyncPolicy<SharedWeights>);

}  // namespace rlalgo::sync
