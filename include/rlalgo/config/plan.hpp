// How long a run is and what happens when: the values that depend on the number of rows.
//
//   total   = max_steps, else the optimizer steps of num_epochs over the rows (sampler/geometry.hpp)
//   warm-up = warmup_steps, else ⌈warmup_ratio·total⌉, else ⌈0.03·total⌉; exactly 1 becomes 2
//   logging = logging_steps, else ⌊0.005·total⌋ within [1, 10]
//   saving  = every save_steps (a fraction means ⌈fraction·total⌉), save_strategy, else at the end of every epoch
//   evaluation, with evaluation data = the same from eval_…; a strategy `steps` without eval_steps follows logging
//
// saves_per_epoch: k stands for the fraction 1/(k·num_epochs) when that is below 1, else for every epoch; so does
// evals_per_epoch. An evaluation before the first step happens when eval_steps or eval_strategy (or evals_per_epoch) is
// set. Departures from axolotl: it logs a grpo run every 500 steps because it does not know the total beforehand; it
// never evaluates when no eval key is set, this does at the end of every epoch.
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

}  // namespace detail

// The plan of a run of `total_steps` optimizer steps (max_steps wins); `evaluates` tells whether there is evaluation
// data.
[[nodiscard]] inline Plan make_plan(const RunConfig& config, std::int64_t total_steps, bool evaluates) {
  Plan plan;
  plan.total_steps = config.max_steps.value_or(total_steps);
  const double total = static_cast<double>(plan.total_steps);
  if (config.warmup_steps)
    plan.warmup_steps = *config.warmup_steps;
  else
    plan.warmup_steps = detail::ceiling(config.warmup_ratio.value_or(0.03) * total);
  if (plan.warmup_steps == 1) plan.warmup_steps = 2;
  plan.logging_steps =
      config.logging_steps.value_or(std::clamp<std::int64_t>(static_cast<std::int64_t>(0.005 * total), 1, 10));
  plan.save =
      detail::interval(config.save_steps, config.save_strategy, config.saves_per_epoch, config, plan.total_steps, 500);
  if (!evaluates) return plan;
  plan.eval = detail::interval(config.eval_steps, config.eval_strategy, config.evals_per_epoch, config,
                               plan.total_steps, plan.logging_steps);
  plan.eval_first =
      plan.eval.unit != Interval::Unit::never && (config.eval_steps || config.eval_strategy || config.evals_per_epoch);
  return plan;
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
  return make_plan(config, geometry.steps(rows, config.num_epochs), evaluates);
}

// The learning-rate schedule of a planned run. As in axolotl, the cosine keys act on `cosine` only:
// cosine_constant_lr_ratio together with cosine_min_lr_ratio, and lr_quadratic_warmup with a plain cosine.
[[nodiscard]] inline optim::ScheduleConfig schedule_of(const RunConfig& config, const Plan& plan) {
  optim::ScheduleConfig out{.name = config.lr_scheduler,
                            .learning_rate = config.learning_rate,
                            .warmup_steps = plan.warmup_steps,
                            .total_steps = plan.total_steps};
  const bool cosine = config.lr_scheduler == "cosine";
  out.quadratic_warmup = cosine && config.lr_quadratic_warmup;
  if (out.quadratic_warmup || !(cosine || config.lr_scheduler == "cosine_with_min_lr")) return out;
  out.min_ratio = config.cosine_min_lr_ratio.value_or(0.0);
  if (cosine && config.cosine_min_lr_ratio) out.constant_ratio = config.cosine_constant_lr_ratio.value_or(0.0);
  return out;
}

}  // namespace rlalgo::config
