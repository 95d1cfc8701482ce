// From a configuration to what every trainer has: optimizer, schedule, loop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/trainer/trainer.hpp>

namespace rlalgo::config {

namespace detail {

[[nodiscard]] inline run::Cadence cadence(const Interval& interval) {
  if (interval.unit == Interval::Unit::steps) return run::Cadence::steps(interval.every);
  if (interval.unit == Interval::Unit::epochs) return run::Cadence::epochs();
  return run::Cadence::never();
}

[[nodiscard]] inline std::optional<std::filesystem::path> resume_path(const RunConfig& c) {
  if (c.resume_from_checkpoint) return std::filesystem::path(*c.resume_from_checkpoint);
  if (!c.auto_resume_from_checkpoints) return std::nullopt;
  return run::latest_checkpoint(c.output_dir);
}

}  // namespace detail

// `method` is the recipe as the report names it; `rows` are training rows.
[[nodiscard]] inline trainer::TrainerConfig trainer_settings(const RunConfig& c, const Plan& plan, std::int64_t rows,
                                                             const std::string& method) {
  trainer::TrainerConfig t;
  t.max_grad_norm = c.max_grad_norm;
  t.adamw = {.beta1 = c.adam_beta1, .beta2 = c.adam_beta2, .epsilon = c.adam_epsilon, .weight_decay = c.weight_decay};
  t.schedule = schedule_of(c, plan);
  run::LoopConfig& loop = t.loop;
  loop.output_dir = c.output_dir;
  loop.title = method + " on " + std::filesystem::path(c.base_model).filename().string();
  loop.progress = true;
  loop.report = true;
  loop.tensorboard = c.use_tensorboard;
  loop.max_steps = plan.total_steps;
  loop.num_epochs = c.num_epochs;
  loop.train_batch_size = c.micro_batch_size;
  loop.logging_steps = plan.logging_steps;
  loop.save = detail::cadence(plan.save);
  loop.save_first_step = c.save_first_step;
  loop.save_only_model = c.save_only_model;
  loop.save_total_limit = c.save_total_limit;
  loop.eval = detail::cadence(plan.eval);
  loop.eval_first = plan.eval_first;
  loop.resume_from_checkpoint = detail::resume_path(c);
  loop.identity = {{"rl", c.rl},
                   {"seed", c.seed},
                   {"rows", rows},
                   {"micro_batch_size", c.micro_batch_size},
                   {"gradient_accumulation_steps", c.gradient_accumulation_steps}};
  return t;
}

}  // namespace rlalgo::config
