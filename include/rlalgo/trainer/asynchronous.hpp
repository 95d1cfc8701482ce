// Online RL whose generation runs beside training: trainer/online.hpp with sampler::Prefetch around the rollouts.
//
// The generator must not read the trainer's own tensors: inference::SnapshotEngine with sync::SnapshotWeights, or a server.
// Where weights change under a call, generator and policy take turns (sync/turns.hpp); evaluations take turns with the
// training by themselves.
// Depth 0 is the synchronous run, to the byte.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo::trainer {

template <class G>
using PrefetchedRollouts = sampler::Prefetch<sampler::Rollouts<G>>;

// `prefetch.generations` follows from the run's steps.
template <class L, class A, class Aggregation, class G, class Y, class R>
[[nodiscard]] Trainer<L, A, PrefetchedRollouts<G>, Aggregation, Y> make_asynchronous(OnlineConfig config,
                                                                                     sampler::PrefetchConfig prefetch,
                                                                                     L loss, A estimator,
                                                                                     Aggregation aggregation,
                                                                                     OnlineInputs<G, Y, R> inputs) {
  const sampler::Geometry& g = config.rollouts.geometry;
  const std::int64_t steps = config.trainer.loop.max_steps;
  prefetch.generations = steps > 0 ? g.generation_of(steps * g.gradient_accumulation_steps - 1) + 1 : 0;
  return make_online(std::move(config), std::move(loss), std::move(estimator), std::move(aggregation),
                     std::move(inputs), [&](std::shared_ptr<sampler::Rollouts<G>> rollouts, SamplerPurpose purpose) {
                       return std::make_shared<PrefetchedRollouts<G>>(
                           purpose == SamplerPurpose::training
                               ? prefetch
                               : sampler::PrefetchConfig{.depth = 0, .turn = prefetch.turn},
                           std::move(rollouts));
                     });
}

}  // namespace rlalgo::trainer
