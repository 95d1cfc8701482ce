// Weight sync of a rank that hands over weights which are sharded over several ranks (distributed/sharded_weights.hpp), where its
// generator is in another process: what is published is fetched from the other ranks tensor by tensor.
//
// `fetch_within(use)` runs `use`, within which the inner policy may ask for weights (model::pending). The others
// serve it when they next wait for each other.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

template <SyncPolicy Y>
class FetchedWeights {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }
  static constexpr Hooks hooks{.forget = hooks_of<Y>().forget};
  using Fetch = std::function<void(const std::function<void()>& use)>;

  FetchedWeights(Y inner, Fetch fetch) : inner_(std::move(inner)), fetch_(std::move(fetch)) {}

  Published publish(std::int64_t version) {
    if (inner_.version_source()() == version) return inner_.publish(version);  // no weights are asked for
    Published out;
    fetch_([&] { out = inner_.publish(version); });
    return out;
  }
  void forget() requires(hooks_of<Y>().forget) { inner_.forget(); }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return inner_.version_source(); }

 private:
  Y inner_;
  Fetch fetch_;
};

}  // namespace rlalgo::sync
