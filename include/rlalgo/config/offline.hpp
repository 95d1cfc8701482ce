// From a configuration to the settings of a preference run: batch, order, optimizer, schedule, loop.
#pragma once

#include <cstdint>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo::config {

// Everything of trainer::BasicOfflineConfig that the configuration decides. `examples`: pairs or rows to train on.
[[nodiscard]] inline trainer::BasicOfflineConfig<optim::AnyOptimizer> offline_config(const RunConfig& c,
                                                                                     std::int64_t examples,
                                                                                     bool evaluates) {
  trainer::BasicOfflineConfig<optim::AnyOptimizer> out;
  out.sampling = {.micro_batch_size = c.micro_batch_size,
                  .gradient_accumulation_steps = c.gradient_accumulation_steps,
                  .shuffle = !recipe_of(c).in_dataset_order,
                  .seed = c.seed,
                  .max_length = c.preference.sequence_len};
  out.evaluation_batch_size = c.eval_batch_size.value_or(0);
  const Plan plan = make_plan(c, examples, evaluates);
  out.trainer = trainer_settings(c, plan, examples, c.rl);
  return out;
}

}  // namespace rlalgo::config
