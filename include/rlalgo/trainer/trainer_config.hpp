// Settings of a trainer that do not depend on the method: its loop, optimizer and schedule, and how a step is computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <rlalgo/model/context_split.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/parameter_groups.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/run/loop.hpp>

namespace rlalgo::trainer {

// What is independent of the method. O: the optimizer (optim/concept.hpp).
template <class O = optim::AdamW>
struct BasicTrainerConfig {
  static_assert(
      optim::Optimizer<O>,
      "trainer::BasicTrainerConfig: this is not an Optimizer; it needs a Config, a constructor from the "
      "parameters and it, `step(double learning_rate)`, `zero_grad()`, `state() const` and `load_state(state)` "
      "(optim::AdamW is one)");

  double temperature = 1.0;    // of the scored distribution; the generator's, so that the ratio compares like with like
  double max_grad_norm = 1.0;  // global L2 norm; 0 = no clipping
  double steps_per_epoch = 0.0;  // optimizer steps that make one pass over the data; 0 = unknown, epoch stays 0
  // Where a pass ends with a step of fewer micro-batches: its share of theirs. steps_per_epoch is whole then.
  double last_step_share = 1.0;
  std::int64_t score_rows = 8;  // rows per forward pass when scoring without gradient
  // Rows of advantage 0 are not computed. For losses that are a surrogate and nothing else (no KL, no entropy bonus)
  // and divide by counts of the step: their gradient is the same. Metrics of the loss are then of the other rows.
  bool skip_zero_advantages = false;
  // Of models with experts: this much of the load-balancing loss (model/router_load.hpp), the mean over the micro-batches of
  // the step, is added to the loss; each is balanced by itself, as in TRL.
  double router_aux_loss_coef = 0.0;
  model::Dealing dealing = model::Dealing::balanced;  // of the tokens of a batch among the ranks of a context group
  double peak_flops =
      0.0;  // of the device of a rank: what train/mfu is a share of; 0 = not known, and there is no train/mfu
  typename O::Config optimizer{};
  optim::ParameterGroups groups{};  // that have a rate of their own, or do not decay
  optim::ScheduleConfig schedule{};
  std::string schedule_metric = "loss";  // of evaluations, which reduce_lr_on_plateau observes
  run::LoopConfig loop{};

  // The length of a pass over the data, from the sampler that draws it; loop.max_steps is set.
  void set_epoch(double steps, double share_of_last = 1.0) {
    steps_per_epoch = steps;
    last_step_share = share_of_last;
    if (steps > 0.0) loop.num_epochs = static_cast<double>(loop.max_steps) / steps;
  }

  // Passes over the data that so many steps make, by their micro-batches.
  [[nodiscard]] double epoch_after(std::int64_t steps) const {
    if (steps_per_epoch <= 0.0 || steps <= 0) return 0.0;
    const auto all = static_cast<double>(steps);
    if (last_step_share == 1.0) return all / steps_per_epoch;
    const double whole = std::floor((all - 1.0) / steps_per_epoch);
    return whole + std::min(1.0, (all - whole * steps_per_epoch) / (steps_per_epoch - 1.0 + last_step_share));
  }
};
using TrainerConfig = BasicTrainerConfig<>;

}  // namespace rlalgo::trainer
