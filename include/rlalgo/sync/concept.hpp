// What a sync policy is: how updated weights reach the generator after an optimizer step.
//
// publish(version) is called once before the first generation and after every optimizer step. When it returns, the next
// generate() call of the generator uses weights of that version.
#pragma once

#include <concepts>
#include <cstdint>

namespace rlalgo::sync {

template <class Y>
concept SyncPolicy = requires(Y& sync, std::int64_t version) {
  { sync.publish(version) } -> std::same_as<void>;
};

// A sync policy fits a sampler when it can serve the sampler's generator; a sampler over data has none and takes
// NoSync.
template <class Y, class S>
concept SyncPolicyFor = SyncPolicy<Y> &&(S::generates ? Y::serves_generator : true);

}  // namespace rlalgo::sync
