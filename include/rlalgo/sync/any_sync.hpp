// A sync policy of any type behind one: for programs that choose theirs at run time. Copies share the policy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

class AnySync {
 public:
  static constexpr bool serves_generator = true;

  template <SyncPolicy Y>
  requires(Y::serves_generator) explicit AnySync(Y policy) {
    const auto shared = std::make_shared<Y>(std::move(policy));
    publish_ = [shared](std::int64_t version) { shared->publish(version); };
    version_source_ = shared->version_source();
  }

  void publish(std::int64_t version) { publish_(version); }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return version_source_; }

 private:
  std::function<void(std::int64_t)> publish_;
  std::function<std::int64_t()> version_source_;
};

static_assert(SyncPolicy<AnySync>);

}  // namespace rlalgo::sync
