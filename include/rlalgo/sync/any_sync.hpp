// A sync policy of any type behind one: for programs that choose theirs at run time. Copies share the policy.
//
// Its type serves every generator; whether the policy inside does is serves(), which make_online asks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

class AnySync {
 public:
  static constexpr bool reaches(inference::WeightSource) { return true; }
  static constexpr Hooks hooks{.training_begins = true, .forget = true, .serves = true};

  template <SyncPolicy Y>
  requires(!std::same_as<Y, AnySync>) explicit AnySync(Y policy) {
    const auto shared = std::make_shared<Y>(std::move(policy));
    publish_ = [shared](std::int64_t version) { return shared->publish(version); };
    version_source_ = shared->version_source();
    serves_ = [](inference::WeightSource source) { return Y::reaches(source); };
    if constexpr (hooks_of<Y>().forget) forget_ = [shared] { shared->forget(); };
    if constexpr (hooks_of<Y>().training_begins) training_begins_ = [shared] { shared->training_begins(); };
  }

  Published publish(std::int64_t version) { return publish_(version); }
  // Whoever has the weights has lost them (sync/weight_gate.hpp); nothing where that cannot be.
  void forget() {
    if (forget_) forget_();
  }
  // See sync/concept.hpp; nothing where the policy does not care.
  void training_begins() {
    if (training_begins_) training_begins_();
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return version_source_; }
  [[nodiscard]] bool serves(inference::WeightSource source) const { return serves_(source); }

 private:
  std::function<Published(std::int64_t)> publish_;
  std::function<std::int64_t()> version_source_;
  std::function<bool(inference::WeightSource)> serves_;
  std::function<void()> forget_, training_begins_;
};

static_assert(SyncPolicy<AnySync>);

}  // namespace rlalgo::sync
