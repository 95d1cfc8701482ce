// Online RL whose generation is asynchronous: trainer/online.hpp with combinators around the rollouts.
//
//   Prefetch<Replay<Reroll<Shared<Rollouts<G>>>>>
//   made ahead ← groups without signal replaced ← failed prompts again ← shared by the ranks ← drawn
//
// Replay and Reroll are off unless configured, and work at depth 0, too.
// The generator must not read the trainer's own tensors: inference::SnapshotEngine with sync::SnapshotWeights, or a server.
// Where weights change under a call, generator and policy exclude each other (sync/weight_gate.hpp); so do evaluations and the
// training.
// Depth 0 is the synchronous run, to the byte.
// Several ranks: AsynchronousConfig::prefetch has the World where their producers meet (World::duplicate).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/replay.hpp>
#include <rlalgo/sampler/reroll.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sampler/shared.hpp>
#include <rlalgo/trainer/online.hpp>
#include <rlalgo/trainer/streaming.hpp>

namespace rlalgo::trainer {

template <class G>
using PrefetchedRollouts = sampler::Prefetch<sampler::Replay<sampler::Reroll<SharedRollouts<G>>>>;

// Evaluations are of the plain rollouts.
struct AsynchronousConfig {
  sampler::PrefetchConfig prefetch{};  // `generations` is taken from the run's steps
  sampler::ReplayConfig replay{};      // `advantages` are the method's
  sampler::RerollConfig reroll{};
};

template <class O, class L, class A, class Aggregation, class G, class Y, class R>
[[nodiscard]] Trainer<L, A, PrefetchedRollouts<G>, Aggregation, Y, O> make_asynchronous(BasicOnlineConfig<O> config,
                                                                                        AsynchronousConfig asynchronous,
                                                                                        L loss, A estimator,
                                                                                        Aggregation aggregation,
                                                                                        OnlineInputs<G, Y, R> inputs) {
  if (asynchronous.prefetch.stream_groups > 0) require_streamable(loss, estimator, aggregation);
  const sampler::Geometry& g = config.rollouts.geometry;
  const std::int64_t steps = config.trainer.loop.max_steps;
  asynchronous.prefetch.generations = steps > 0 ? g.generation_of(steps * g.gradient_accumulation_steps - 1) + 1 : 0;
  asynchronous.replay.advantages = [estimator, aggregation](const core::RewardTable& rewards,
                                                            const core::Groups& groups) {
    const std::vector<double> none(rewards.rows(), 0.0);  // divergence from the reference
    return aggregation::aggregate(aggregation, estimator, rewards, groups, none).advantage;
  };
  // Of several ranks a rank's samplers exclude each other while they do not wait for other ranks: Shared locks, not Prefetch.
  const std::shared_ptr<distributed::World>& producers = asynchronous.prefetch.world;
  AsynchronousConfig plain{.prefetch = {.depth = 0}, .replay = {}, .reroll = {}};
  if (producers == nullptr) {
    plain.prefetch.mutex = asynchronous.prefetch.mutex;
    plain.prefetch.scoring_mutex = asynchronous.prefetch.scoring_mutex;
  }
  const sampler::SharedConfig together{.world = producers != nullptr ? producers : inputs.world,
                                       .mutex = producers != nullptr ? asynchronous.prefetch.mutex : nullptr};
  const sampler::SharedConfig evaluating{.world = inputs.world, .mutex = together.mutex};
  return make_online(std::move(config), std::move(loss), std::move(estimator), std::move(aggregation),
                     std::move(inputs), [&](std::shared_ptr<sampler::Rollouts<G>> rollouts, SamplerPurpose purpose) {
                       const bool trains = purpose == SamplerPurpose::training;
                       const AsynchronousConfig& c = trains ? asynchronous : plain;
                       using Rerolled = sampler::Reroll<SharedRollouts<G>>;
                       using Replayed = sampler::Replay<Rerolled>;
                       auto shared =
                           std::make_shared<SharedRollouts<G>>(trains ? together : evaluating, std::move(rollouts));
                       auto rerolled = std::make_shared<Rerolled>(c.reroll, std::move(shared));
                       return std::make_shared<PrefetchedRollouts<G>>(
                           c.prefetch, std::make_shared<Replayed>(c.replay, std::move(rerolled)));
                     });
}

// The same of a method (method.hpp).
template <class M, class C, class G, class Y, class R>
[[nodiscard]] auto make_async_trainer(C config, AsynchronousConfig asynchronous, OnlineInputs<G, Y, R> inputs) {
  static_assert(sizeof(detail::OnlineRules<M, C, R>) > 0);
  if constexpr (detail::trains_online<M, C, R>()) {
    auto parts = detail::parts_of<M>(config.method, config.run.rollouts);
    return make_asynchronous(std::move(config.run), std::move(asynchronous), std::move(parts.loss),
                             std::move(parts.estimator), std::move(parts.aggregation), std::move(inputs));
  } else {
    return detail::Refused{};
  }
}

template <class M, class C, class G, class Y, class R>
run::Outcome train_async(C config, AsynchronousConfig asynchronous, OnlineInputs<G, Y, R> inputs,
                         std::span<run::Observer* const> observers = {}) {
  return make_async_trainer<M>(std::move(config), std::move(asynchronous), std::move(inputs)).run(observers);
}

}  // namespace rlalgo::trainer

namespace rlalgo {
using trainer::AsynchronousConfig;
using trainer::make_async_trainer;
using trainer::train_async;
}  // namespace rlalgo
