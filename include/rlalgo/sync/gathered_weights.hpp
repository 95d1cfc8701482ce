// Weight sync where the trainer's weights are sharded (distributed/sharded_weights.hpp) and the generator reads them where they
// are: before each publish they are made whole, on all ranks together, and stay so until training goes on.
//
// `gather` makes them whole and returns whether they were not. Then `moved` is called: the generator may use no address of theirs that it remembers.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

template <SyncPolicy Y>
class GatheredWeights {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }
  static constexpr Hooks hooks{.training_begins = true};

  GatheredWeights(Y inner, std::function<bool()> gather, std::function<void()> moved)
      : inner_(std::move(inner)), gather_(std::move(gather)), moved_(std::move(moved)) {}

  Published publish(std::int64_t version) {
    const os::Stopwatch watch;
    if (!gather_()) return inner_.publish(version);
    if (moved_) moved_();
    Published out = inner_.publish(version);
    out.seconds = watch.seconds();
    return out;
  }
  void training_begins() {
    if constexpr (hooks_of<Y>().training_begins) inner_.training_begins();
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return inner_.version_source(); }

 private:
  Y inner_;
  std::function<bool()> gather_;
  std::function<void()> moved_;
};

}  // namespace rlalgo::sync
