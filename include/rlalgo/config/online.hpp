// From a configuration to the settings of an online run: geometry, sampling, optimizer, schedule, loop, rewards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/remote/reward_functions.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/trainer/checkpoint.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo::config {

[[nodiscard]] inline inference::SamplingConfig sampling(const RunConfig& c, std::vector<data::TokenId> stop_ids) {
  return {.temperature = c.trl.temperature,
          .top_p = c.trl.top_p,
          .top_k = c.trl.top_k,
          .min_p = c.trl.min_p,
          .repetition_penalty = c.trl.repetition_penalty,
          .max_new_tokens = c.trl.max_completion_length,
          .stop_ids = std::move(stop_ids)};
}

namespace detail {

[[nodiscard]] inline trainer::Cadence cadence(const Interval& interval) {
  if (interval.unit == Interval::Unit::steps) return trainer::Cadence::steps(interval.every);
  if (interval.unit == Interval::Unit::epochs) return trainer::Cadence::epochs();
  return trainer::Cadence::never();
}

[[nodiscard]] inline std::optional<std::filesystem::path> resume_path(const RunConfig& c) {
  if (c.resume_from_checkpoint) return std::filesystem::path(*c.resume_from_checkpoint);
  if (!c.auto_resume_from_checkpoints) return std::nullopt;
  return trainer::latest_checkpoint(c.output_dir);
}

}  // namespace detail

// Everything of trainer::OnlineConfig that the configuration decides. `rows`: training prompts.
[[nodiscard]] inline trainer::OnlineConfig online_config(const RunConfig& c, const LanguageModel& model,
                                                         std::int64_t rows, bool evaluates) {
  trainer::OnlineConfig out;
  out.rollouts = {.geometry = geometry_of(c),
                  .seed = c.seed,
                  .shuffle = c.trl.shuffle_dataset,
                  .sampling = sampling(c, model.stop_ids),
                  .mask_truncated_completions = c.trl.mask_truncated_completions};
  out.evaluation_generations = c.trl.num_generations_eval.value_or(0);
  out.evaluation_batch_size = c.eval_batch_size.value_or(0);

  const Plan plan = make_plan(c, out.rollouts.geometry, rows, evaluates);
  trainer::TrainerConfig& t = out.trainer;
  t.max_grad_norm = c.max_grad_norm;
  t.adamw = {.beta1 = c.adam_beta1, .beta2 = c.adam_beta2, .epsilon = c.adam_epsilon, .weight_decay = c.weight_decay};
  t.schedule = schedule_of(c, plan);
  trainer::LoopConfig& loop = t.loop;
  loop.output_dir = c.output_dir;
  loop.title = c.rl + " (" + c.trl.loss_type + ") on " + std::filesystem::path(c.base_model).filename().string();
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
  loop.settings = {{"base_model", c.base_model},
                   {"loss_type", c.trl.loss_type},
                   {"beta", c.beta},
                   {"learning_rate", c.learning_rate},
                   {"lr_scheduler", c.lr_scheduler},
                   {"warmup_steps", plan.warmup_steps},
                   {"num_generations", c.trl.num_generations},
                   {"num_iterations", c.trl.num_iterations},
                   {"max_completion_length", c.trl.max_completion_length},
                   {"temperature", c.trl.temperature},
                   {"epsilon", c.trl.epsilon},
                   {"scale_rewards", c.trl.scale_rewards},
                   {"weight_decay", c.weight_decay},
                   {"max_grad_norm", c.max_grad_norm},
                   {"reward_funcs", c.trl.reward_funcs}};
  return out;
}

// The reward functions with their weights; Python modules are looked for in the working directory, then beside the
// configuration file.
[[nodiscard]] inline std::vector<sampler::WeightedReward> weighted_rewards(const RunConfig& c,
                                                                           const std::filesystem::path& config_file) {
  remote::PythonConfig python;
  python.search_paths = {std::filesystem::current_path()};
  if (const auto beside = std::filesystem::absolute(config_file).parent_path(); beside != python.search_paths.front())
    python.search_paths.push_back(beside);
  python.call_seconds = c.trl.reward_timeout;
  const auto functions =
      remote::make_reward_functions(c.trl.reward_funcs, python, {.max_completion_length = c.trl.max_completion_length});
  std::vector<sampler::WeightedReward> out;
  for (std::size_t k = 0; k < functions.size(); ++k)
    out.push_back({functions[k], c.trl.reward_weights.empty() ? 1.0 : c.trl.reward_weights[k]});
  return out;
}

}  // namespace rlalgo::config
