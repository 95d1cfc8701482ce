// Generator and policy of a run that generates asynchronously: the gate with what stands around it.
//
//   ScheduledGenerator<RecoveringGenerator<G>>      recorded or repeated ← lost weights come back ← one call at a time
//   ScheduledSync<GatedSync<RecoveringSync<Y>>>     recorded or repeated ← between two calls ← from the beginning where they were lost
//
//   auto shared = std::make_shared<sync::Asynchronous>(sync::Asynchronous{.exclusive = true});
//   sync::AsynchronousGenerator<G> generator = sync::asynchronous_generator(server, shared);
//   sync::AsynchronousSync<Y> policy = sync::asynchronous_sync(std::move(sync), shared);
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <rlalgo/inference/generator.hpp>
#include <rlalgo/sync/call_schedule.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/recovering.hpp>
#include <rlalgo/sync/scheduled.hpp>
#include <rlalgo/sync/weight_gate.hpp>

namespace rlalgo::sync {

struct Asynchronous {
  std::shared_ptr<WeightGate> gate = std::make_shared<WeightGate>();
  bool exclusive = false;                            // weights change under a call otherwise
  std::shared_ptr<CallSchedule> schedule = nullptr;  // null: nothing is recorded or repeated
  CallingRanks callers = {};
  PublishingRanks publishers = {};
  std::shared_ptr<Recovery> recovery = std::make_shared<Recovery>();

  // For the trainer's thread, while it waits for the generator; with the version of its weights.
  void meanwhile(std::int64_t version) const { restore_if_lost(*gate, *recovery, version); }
};

template <inference::Generator G>
using AsynchronousGenerator = ScheduledGenerator<RecoveringGenerator<G>>;
template <SyncPolicy Y>
using AsynchronousSync = ScheduledSync<GatedSync<RecoveringSync<Y>>>;

template <inference::Generator G>
[[nodiscard]] AsynchronousGenerator<G> asynchronous_generator(G& generator, const Asynchronous& with) {
  return {RecoveringGenerator<G>(GatedGenerator<G>(generator, with.gate, with.callers), with.recovery), with.gate,
          with.schedule};
}

template <SyncPolicy Y>
[[nodiscard]] AsynchronousSync<Y> asynchronous_sync(Y policy, const Asynchronous& with) {
  GatedSync<RecoveringSync<Y>> gated(RecoveringSync<Y>(std::move(policy), with.gate), with.gate, with.exclusive,
                                     with.publishers);
  with.recovery->sharded = with.publishers.sources != nullptr;
  if constexpr (hooks_of<Y>().forget)
    with.recovery->hand_over = [gated](std::int64_t version) mutable { (void)gated.hand_over(version); };
  return {std::move(gated), with.gate, with.schedule};
}

}  // namespace rlalgo::sync
