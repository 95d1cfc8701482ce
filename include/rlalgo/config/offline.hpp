// From a configuration to the settings of a preference run: batch, order, optimizer, schedule, loop.
#pragma once

#include <cstdint>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo::config {

// Everything of trainer::OfflineConfig that the configuration decides. `examples`: pairs or rows to train on.
[[nodiscard]] inline trainer::OfflineConfig offline_config(const RunConfig& c, std::int64_t examples, bool evaluates) {
  const PreferenceConfig& p = c.preference;
  trainer::OfflineConfig out;
  out.sampling = {.micro_batch_size = c.micro_batch_size,
                  .gradient_accumulation_steps = c.gradient_accumulation_steps,
                  .shuffle = !recipe_of(c).in_dataset_order,
                  .seed = c.seed};
  out.evaluation_batch_size = c.eval_batch_size.value_or(0);
  const Plan plan = make_plan(c, examples, evaluates);
  out.trainer = trainer_settings(c, plan, examples, c.rl);
  data::Json& s = out.trainer.loop.settings;
  s = {{"base_model", c.base_model},        {"beta", c.beta},
       {"learning_rate", c.learning_rate},  {"lr_scheduler", c.lr_scheduler},
       {"warmup_steps", plan.warmup_steps}, {"sequence_len", p.sequence_len},
       {"weight_decay", c.weight_decay},    {"max_grad_norm", c.max_grad_norm}};
  s["dpo_loss_type"] = p.dpo_loss_type;
  s["loss_type"] = p.loss_type;
  s["kto_weights"] = {p.kto_desirable_weight, p.kto_undesirable_weight};
  s["cpo_alpha"] = p.cpo_alpha;
  s["simpo_gamma"] = p.simpo_gamma;
  return out;
}

}  // namespace rlalgo::config
