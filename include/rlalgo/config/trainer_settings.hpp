// From a configuration to what every trainer has: optimizer, schedule, loop.
//
// Errors (usage): [rlalgo.config.30] resume_from_checkpoint: last, and there is none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/device.hpp>
#include <rlalgo/config/outside.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/resume_rules.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/adafactor.hpp>
#include <rlalgo/optim/adagrad.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/optim/any_optimizer.hpp>
#include <rlalgo/optim/lion.hpp>
#include <rlalgo/optim/muon.hpp>
#include <rlalgo/optim/parameter_groups.hpp>
#include <rlalgo/optim/rmsprop.hpp>
#include <rlalgo/optim/sgd.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/resume.hpp>
#include <rlalgo/tensor/device.hpp>
#include <rlalgo/tensor/peak.hpp>
#include <rlalgo/trainer/trainer.hpp>

namespace rlalgo::config {

namespace detail {

[[nodiscard]] inline run::Cadence cadence(const Interval& interval) {
  if (interval.unit == Interval::Unit::steps) return run::Cadence::steps(interval.every);
  if (interval.unit == Interval::Unit::epochs) return run::Cadence::epochs();
  return run::Cadence::never();
}

inline void set_resume(const RunConfig& c, run::LoopConfig& loop) {
  loop.resume_rules = resume_rules(c);
  if (resumes_last(c)) {
    loop.resume_from_checkpoint =
        run::latest_checkpoint(c.output_dir, [&](const std::string& note) { loop.resume_notes.push_back(note); });
    loop.resume_verified = true;
    if (!loop.resume_from_checkpoint)
      core::raise_usage(
          "config", 30,
          {.what = "there is no such checkpoint",
           .found = "no whole checkpoint of this run in " + c.output_dir,
           .expected = "a checkpoint-<step> directory, or last where there is one",
           .where = c.place("resume_from_checkpoint"),
           .remedy = "start without it, or set auto_resume_from_checkpoints: true, which starts afresh where "
                     "there is none"});
  } else if (c.resume_from_checkpoint) {
    loop.resume_from_checkpoint = std::filesystem::path(*c.resume_from_checkpoint);
  } else if (c.auto_resume_from_checkpoints) {
    loop.resume_from_checkpoint =
        run::latest_checkpoint(c.output_dir, [&](const std::string& note) { loop.resume_notes.push_back(note); });
    loop.resume_verified = true;
  }
}

}  // namespace detail

// The optimizer of a trainer that a file describes.
using TrainerSettings = trainer::BasicTrainerConfig<optim::AnyOptimizer>;

[[nodiscard]] inline optim::AdamWConfig adamw_of(const RunConfig& c) {
  return {.beta1 = c.adam_beta1, .beta2 = c.adam_beta2, .epsilon = c.adam_epsilon, .weight_decay = c.weight_decay};
}

[[nodiscard]] inline optim::AnyOptimizer::Config optimizer_of(const RunConfig& c) {
  const UpdateRule rule = optimizer_named(c.optimizer).rule;
  if (rule == UpdateRule::lion)
    return optim::AnyOptimizer::of<optim::Lion>(
        {.beta1 = c.adam_beta1, .beta2 = c.adam_beta2, .weight_decay = c.weight_decay});
  if (rule == UpdateRule::adafactor) {
    const AdafactorArguments& a = c.adafactor;
    return optim::AnyOptimizer::of<optim::Adafactor>({.epsilon_square = a.epsilon_square,
                                                      .epsilon_scale = a.epsilon_scale,
                                                      .clip_threshold = a.clip_threshold,
                                                      .decay_rate = a.decay_rate,
                                                      .beta1 = a.beta1,
                                                      .weight_decay = c.weight_decay,
                                                      .scale_parameter = a.scale_parameter});
  }
  if (rule == UpdateRule::muon) {
    optim::MuonConfig out{.momentum = c.muon.momentum,
                          .nesterov = c.muon.nesterov,
                          .ns_steps = c.muon.ns_steps,
                          .weight_decay = c.weight_decay,
                          .epsilon = c.adam_epsilon};
    // Muon's own unless both are written, as in axolotl.
    if (c.was_set("adam_beta1") && c.was_set("adam_beta2")) {
      out.beta1 = c.adam_beta1;
      out.beta2 = c.adam_beta2;
    }
    return optim::AnyOptimizer::of<optim::Muon>(out);
  }
  const auto momentum = [&](double value) { return buffers_momentum(c) ? std::optional(value) : std::nullopt; };
  if (rule == UpdateRule::sgd)
    return optim::AnyOptimizer::of<optim::Sgd>({.momentum = momentum(c.sgd.momentum),
                                                .dampening = c.sgd.dampening,
                                                .nesterov = c.sgd.nesterov,
                                                .weight_decay = c.weight_decay});
  if (rule == UpdateRule::adagrad)
    return optim::AnyOptimizer::of<optim::Adagrad>(
        {.lr_decay = c.adagrad.lr_decay, .epsilon = c.adagrad.epsilon, .weight_decay = c.weight_decay});
  if (rule == UpdateRule::rmsprop)
    return optim::AnyOptimizer::of<optim::RmsProp>({.alpha = c.rmsprop.alpha,
                                                    .epsilon = c.rmsprop.epsilon,
                                                    .centered = c.rmsprop.centered,
                                                    .momentum = momentum(c.rmsprop.momentum),
                                                    .weight_decay = c.weight_decay});
  return moments_of(c.optimizer) == Moments::blockwise_8bit
             ? optim::AnyOptimizer::of<optim::AdamW8bit>({.adam = adamw_of(c)})
             : optim::AnyOptimizer::of<optim::AdamW>(adamw_of(c));
}

// Parameters with rates of their own, as axolotl's trainers have them.
[[nodiscard]] inline optim::ParameterGroups parameter_groups_of(const RunConfig& c) {
  const RateGroupsConfig& g = c.groups;
  if (g.loraplus_lr_ratio) return optim::lora_plus(*g.loraplus_lr_ratio);
  if (!g.any()) return {};
  std::vector<optim::ModuleRate> rates;
  for (const data::Json& group : g.lr_groups)
    rates.push_back({.name = "lr_groups: " + group.at("name").get<std::string>(),
                     .modules = group.at("modules").get<std::vector<std::string>>(),
                     .rate = group.at("lr").get<double>() / c.learning_rate});
  const double embeddings = g.embedding_lr_scale ? *g.embedding_lr_scale
                            : g.embedding_lr     ? *g.embedding_lr / c.learning_rate
                                                 : 1.0;
  return optim::module_rates(std::move(rates), embeddings,
                             c.lora ? c.lora->modules_to_save : std::vector<std::string>());
}

// `method` is the recipe as the report names it; `rows` are training rows.
[[nodiscard]] inline TrainerSettings trainer_settings(const RunConfig& c, const Plan& plan, std::int64_t rows,
                                                      const std::string& method) {
  TrainerSettings t;
  t.max_grad_norm = c.max_grad_norm;
  t.dealing = dealing_of(c);
  t.optimizer = optimizer_of(c);
  t.groups = parameter_groups_of(c);
  t.peak_flops = c.peak_tflops ? *c.peak_tflops * 1e12 : tensor::peak_flops(tensor::describe(device_of(c)));
  t.schedule = schedule_of(c, plan);
  t.schedule_metric = c.metric_for_best_model.value_or("loss");
  run::LoopConfig& loop = t.loop;
  loop.output_dir = c.output_dir;
  loop.title = method + " on " + std::filesystem::path(c.base_model).filename().string();
  loop.progress = true;
  loop.signals = true;
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
  loop.watchdog = {.threshold = c.loss_watchdog_threshold, .patience = c.loss_watchdog_patience};
  detail::set_resume(c, loop);
  loop.settings = c.settings;
  if (moments_of(c.optimizer) == Moments::blockwise_8bit) loop.settings["moments of the optimizer"] = "8-bit";
  switch (optimizer_named(c.optimizer).rule) {
    case UpdateRule::adamw:
      break;
    case UpdateRule::lion:
      loop.settings["update rule"] = "lion";
      break;
    case UpdateRule::adafactor:
      loop.settings["update rule"] = "adafactor";
      break;
    case UpdateRule::muon:
      loop.settings["update rule"] = "muon";
      break;
    case UpdateRule::sgd:
    case UpdateRule::adagrad:
    case UpdateRule::rmsprop:
      loop.settings["update rule"] = c.optimizer;
  }
  loop.identity = {{"rl", c.rl},
                   {"seed", c.seed},
                   {"rows", rows},
                   {"micro_batch_size", c.micro_batch_size},
                   {"gradient_accumulation_steps", c.gradient_accumulation_steps}};
  return t;
}

}  // namespace rlalgo::config
