// A run of several ranks: rank 0 has the loop (run/loop.hpp) with its files and its decisions, the others do what it says.
//
//   rank 0    run::Loop(config, led(world, callbacks)).run(), then end(world, outcome)
//   others    follow(world, callbacks): the same callbacks, called when rank 0 calls its own
//
// What all do together: steps, evaluations, and bringing back a checkpoint (each reads the files that rank 0 names). What
// rank 0 does alone: logs, samples, saving, unless the weights are sharded. All ranks have the same weights, optimizer and samplers after each step, so its
// checkpoint is everybody's. The others wait meanwhile, as long as rank 0 shows that it lives.
//
// A step that one rank gives up since a stop was asked for, all give up (World::give_up), before its batch is there: what
// raises os::Interrupted is the making of a batch, which no rank has until all have made their part. So rank 0 saves what
// was before that step, as one rank does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::trainer {

// `saves_together`: all ranks must be there when something is saved (trainer/placement.hpp).
[[nodiscard]] run::Callbacks led(distributed::World& world, run::Callbacks callbacks, bool saves_together = false);
void end(distributed::World& world, const run::Outcome& outcome);
[[nodiscard]] run::Outcome follow(distributed::World& world, const run::Callbacks& callbacks, bool signals = false);

// Raises unless all ranks begin with the same trained weights. [rlalgo.trainer.40]
void require_same_start(distributed::World& world, std::span<const model::Parameter> parameters);

// Where the ranks form context groups, `scorers` (null ones aside) score with those of their group from now on.
void share_contexts(const std::shared_ptr<distributed::World>& world, model::Dealing dealing,
                    std::initializer_list<std::shared_ptr<model::Policy>> scorers);

// What the ranks tell each other of the micro-batches of a step that each of them has computed: their metrics are merged
// into `metrics`, a request to stop that one of them got is everybody's, and the sum of `loss` is returned. `mark` must be
// the same on all: something that would differ if they had drifted apart. [rlalgo.trainer.41]
[[nodiscard]] double together(distributed::World& world, double loss, core::Metrics& metrics, double mark);

// Before a failure that all ranks have seen: returns on the first rank that knows a `cause` (rank 0 where none does), which
// raises, and fails on the others with its error.
void wait_for_turn_to_fail(distributed::World& world, bool cause);

// The log-probs that part number `part` of a step was trained with.
struct PartColumn {
  std::size_t part = 0;
  tensor::Tensor log_prob;  // [N]
};
// Those of all other ranks (of one of each other context group), in float32.
[[nodiscard]] std::vector<PartColumn> columns_of_others(distributed::World& world, std::span<const PartColumn> own);

// The sums over the ranks of the gradients of all parameters of which at least one rank has a gradient. A rank that has none of
// such a parameter gets a gradient of zeros first. With one rank: the gradients that there are, unchanged.
[[nodiscard]] std::vector<tensor::Tensor> summed_gradients(distributed::World& world,
                                                           std::span<const model::Parameter> parameters);

}  // namespace rlalgo::trainer

#ifndef RLALGO_COMPILED
#include <rlalgo/trainer/detail/led_run_impl.hpp>
#endif
