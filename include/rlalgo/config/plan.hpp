// How long a run is and what happens when: the values that depend on the number of rows.
//
//   epochs  = the optimizer steps of num_epochs: of a dataset of preferences ⌈rows·num_epochs / examples of a step⌉
//             (where epochs end in a part of a step, fewer than they take: the run ends before its last epoch does), of
//             rollouts those of sampler/geometry.hpp
//   total   = max_steps, else epochs
//   warm-up = warmup_steps, 1 becoming 2; else of rollouts ⌈r·total⌉, r = warmup_ratio or 0.03; of preferences
//             ⌊warmup_ratio·epochs⌋ or min(⌊0.03·epochs⌋, 100), 1 becoming 2
//   logging = logging_steps, else ⌊0.005·epochs⌋ within [1, 10]
//   saving  = every save_steps (a fraction means ⌈fraction·total⌉), save_strategy, else at the end of every epoch
//   evaluation, with evaluation data = the same from eval_…; a strategy `steps` without eval_steps follows logging;
//             whatever the strategy, also after the last step
//
// saves_per_epoch: k stands for the fraction 1/(k·num_epochs) when that is below 1, else for every epoch; so does
// evals_per_epoch. An evaluation before the first step happens when eval_steps or eval_strategy (or evals_per_epoch) is
// set, as in axolotl, unless eval_on_start (transformers' name) says otherwise.
// Source: axolotl 0.19 (the steps of a grpo run are counted by transformers, hence the two roundings).
// Departures from axolotl: it logs a grpo run every 500 steps because it does not know the total beforehand; it never
// evaluates when no eval key is set, this does at the end of every epoch; it counts the steps of a gdpo run as if a row
// were one completion and ends it after 1/num_generations of the epochs.
// Errors (usage): [rlalgo.config.11] fewer rows than one generation needs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::config {

struct Interval {
  enum class Unit { never, steps, epochs };
  Unit unit = Unit::never;
  std::int64_t every = 0;  // steps
  friend bool operator==(const Interval&, const Interval&) = default;
};

struct Plan {
  std::int64_t total_steps = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t logging_steps = 1;
  Interval save;
  Interval eval;
  bool eval_first = false;  // also before the first step
};

namespace detail {

inline std::int64_t ceiling(double value) { return static_cast<std::int64_t>(std::ceil(value)); }

// `fallback` is the interval of the strategy `steps` without a number, in steps.
inline Interval interval(std::optional<double> steps, const std::optional<std::string>& strategy,
                         const std::optional<std::int64_t>& per_epoch, const RunConfig& config, std::int64_t total,
                         std::int64_t fallback) {
  if (strategy == "no") return {};
  if (per_epoch) {
    const double share = 1.0 / (static_cast<double>(*per_epoch) * config.num_epochs);
    if (share < 1.0) steps = share;
  }
  if (steps) {
    const std::int64_t every =
        *steps < 1.0 ? ceiling(*steps * static_cast<double>(total)) : static_cast<std::int64_t>(*steps);
    return {Interval::Unit::steps, std::max<std::int64_t>(every, 1)};
  }
  if (strategy == "steps") return {Interval::Unit::steps, fallback};
  return {Interval::Unit::epochs, 0};
}

// A warm-up of one step is a first update of rate 0 and nothing else.
inline std::int64_t never_one(std::int64_t warmup) { return warmup == 1 ? 2 : warmup; }

// All but the warm-up, which is `warmup` steps unless the file says how many.
inline Plan plan_around(const RunConfig& config, std::int64_t epochs, std::int64_t warmup, bool evaluates) {
  Plan plan;
  plan.total_steps = config.max_steps.value_or(epochs);
  plan.warmup_steps = config.warmup_steps ? never_one(*config.warmup_steps) : warmup;
  const auto share = static_cast<std::int64_t>(0.005 * static_cast<double>(epochs));
  plan.logging_steps = config.logging_steps.value_or(std::clamp<std::int64_t>(share, 1, 10));
  plan.save = interval(config.save_steps, config.save_strategy, config.saves_per_epoch, config, plan.total_steps, 500);
  if (!evaluates) return plan;
  plan.eval = interval(config.eval_steps, config.eval_strategy, config.evals_per_epoch, config, plan.total_steps,
                       plan.logging_steps);
  plan.eval_first = config.eval_on_start.value_or(
      plan.eval.unit != Interval::Unit::never && (config.eval_steps || config.eval_strategy || config.evals_per_epoch));
  return plan;
}

}  // namespace detail

// The plan of a run over a dataset of `rows` preferences; `evaluates` tells whether there is evaluation data.
[[nodiscard]] inline Plan make_plan(const RunConfig& config, std::int64_t rows, bool evaluates) {
  const auto examples = static_cast<double>(config.micro_batch_size * config.gradient_accumulation_steps);
  const std::int64_t epochs = detail::ceiling(static_cast<double>(rows) * config.num_epochs / examples);
  auto warmup = static_cast<std::int64_t>(config.warmup_ratio.value_or(0.03) * static_cast<double>(epochs));
  if (!config.warmup_ratio) warmup = std::min<std::int64_t>(warmup, 100);
  return detail::plan_around(config, epochs, detail::never_one(warmup), evaluates);
}

// The plan of an online run over `rows` prompts.
[[nodiscard]] inline Plan make_plan(const RunConfig& config, const sampler::Geometry& geometry, std::int64_t rows,
                                    bool evaluates) {
  if (rows < geometry.prompts()) {
    core::raise_usage(
        "config", 11,
        {.what = "there are fewer rows than prompts in one generation batch",
         .found = std::to_string(rows) + " rows",
         .expected = "at least " + std::to_string(geometry.prompts()) + " (" + std::to_string(geometry.completions()) +
                     " completions / " + std::to_string(geometry.num_generations) + " per prompt)",
         .where = config.place("datasets"),
         .remedy = "lower micro_batch_size or gradient_accumulation_steps, or add rows"});
  }
  const std::int64_t epochs = geometry.steps(rows, config.num_epochs);
  const auto total = static_cast<double>(config.max_steps.value_or(epochs));
  return detail::plan_around(config, epochs, detail::ceiling(config.warmup_ratio.value_or(0.03) * total), evaluates);
}

// The learning-rate schedule of a planned run. As in axolotl, of the cosine keys cosine_min_lr_ratio acts on `cosine` and
// `rex`, cosine_constant_lr_ratio together with it on `cosine`, and lr_quadratic_warmup on a plain cosine, whose
// num_cycles then count for nothing.
[[nodiscard]] inline optim::ScheduleConfig schedule_of(const RunConfig& config, const Plan& plan) {
  optim::ScheduleConfig out = config.schedule;
  out.name = config.lr_scheduler;
  out.learning_rate = config.learning_rate;
  out.warmup_steps = plan.warmup_steps;
  out.total_steps = plan.total_steps;
  const bool cosine = config.lr_scheduler == "cosine";
  out.quadratic_warmup = cosine && config.lr_quadratic_warmup;
  if (cosine && (config.lr_quadratic_warmup || config.cosine_min_lr_ratio.value_or(0.0) != 0.0)) out.cycles.reset();
  const bool lowered = cosine || config.lr_scheduler == "rex" || config.lr_scheduler.ends_with("_with_min_lr");
  if (out.quadratic_warmup || !lowered) return out;
  out.min_ratio = config.cosine_min_lr_ratio.value_or(0.0);
  if (cosine && config.cosine_min_lr_ratio) out.constant_ratio = config.cosine_constant_lr_ratio.value_or(0.0);
  return out;
}

}  // namespace rlalgo::config
