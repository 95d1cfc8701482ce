// The batch geometry of online RL: how many completions one generation makes and how micro-steps walk through them.
//
//   N = b·W·S completions per generation, P = N / G prompts, and each generation is trained on for S·μ micro-steps;
//   a micro-steps make one optimizer step.
//
// Source: GRPO as in TRL (GRPOConfig, RepeatSampler). Only N has to be divisible by G: a group may straddle
// micro-batches and ranks. An epoch visits ⌊rows / P⌋ chunks of P prompts; the incomplete last chunk is dropped.
//
//   symbol  field                          meaning
//   b       micro_batch_size               completions per rank and micro-step
//   a       gradient_accumulation_steps    micro-steps per optimizer step
//   W       world_size                     ranks
//   S       steps_per_generation           micro-batches one generation is cut into; a unless given
//   μ       num_iterations                 passes over one generation
//   G       num_generations                completions per prompt
//
// Errors: [rlalgo.data.14] the numbers do not fit together.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::data {

struct GeometryConfig {
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  std::int64_t world_size = 1;
  std::int64_t num_generations = 8;
  std::int64_t num_iterations = 1;
  std::optional<std::int64_t> generation_batch_size;  // N; excludes steps_per_generation
  std::optional<std::int64_t> steps_per_generation;   // S
};

struct Geometry {
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  std::int64_t world_size = 1;
  std::int64_t num_generations = 8;
  std::int64_t num_iterations = 1;
  std::int64_t steps_per_generation = 1;
  std::int64_t generation_batch_size = 8;   // N
  std::int64_t prompts_per_generation = 1;  // P

  // Micro-steps that one generation serves: S·μ.
  [[nodiscard]] std::int64_t micro_steps_per_generation() const { return steps_per_generation * num_iterations; }
  // True when some micro-step trains on rows that the weights of its own optimizer step did not generate: old log-probs
  // have to be recorded at generation time. Otherwise the ratio is 1 and old = the current log-prob, detached.
  [[nodiscard]] bool off_policy() const { return gradient_accumulation_steps % micro_steps_per_generation() != 0; }
  [[nodiscard]] std::int64_t generations_per_epoch(std::int64_t rows) const { return rows / prompts_per_generation; }
  [[nodiscard]] std::int64_t micro_steps_per_epoch(std::int64_t rows) const {
    return generations_per_epoch(rows) * micro_steps_per_generation();
  }
  // Optimizer steps of one epoch; the last one may hold fewer than `a` micro-steps.
  [[nodiscard]] std::int64_t steps_per_epoch(std::int64_t rows) const {
    const std::int64_t micro_steps = micro_steps_per_epoch(rows);
    return (micro_steps + gradient_accumulation_steps - 1) / gradient_accumulation_steps;
  }
  // Optimizer steps of `epochs` epochs over `rows` rows: ⌈epochs · steps_per_epoch⌉.
  [[nodiscard]] std::int64_t total_steps(std::int64_t rows, double epochs) const {
    return static_cast<std::int64_t>(std::ceil(epochs * static_cast<double>(steps_per_epoch(rows))));
  }
};

// What is wrong with a geometry, in terms of one configuration key.
struct GeometryProblem {
  std::string key;  // as spelled in the configuration
  core::ErrorText text;
};

namespace detail {

inline std::optional<GeometryProblem> positive(const char* key, std::int64_t value, std::int64_t least) {
  if (value >= least) return std::nullopt;
  return GeometryProblem{key,
                         {.what = std::string(key) + " is too small",
                          .found = std::to_string(value),
                          .expected = "at least " + std::to_string(least)}};
}

}  // namespace detail

// The first problem of a geometry, or nothing. The remedy names the smallest change that works.
[[nodiscard]] inline std::optional<GeometryProblem> geometry_problem(const GeometryConfig& c) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  if (auto p = detail::positive("micro_batch_size", c.micro_batch_size, 1)) return p;
  if (auto p = detail::positive("gradient_accumulation_steps", c.gradient_accumulation_steps, 1)) return p;
  if (auto p = detail::positive("trl.num_iterations", c.num_iterations, 1)) return p;
  if (auto p = detail::positive("trl.num_generations", c.num_generations, 2)) {
    p->text.remedy = "a group needs two completions to compare; 4 or 8 are usual";
    return p;
  }
  if (c.generation_batch_size && c.steps_per_generation) {
    return GeometryProblem{
        "trl.steps_per_generation",
        {.what = "trl.generation_batch_size and trl.steps_per_generation are both set",
         .found = number(*c.generation_batch_size) + " and " + number(*c.steps_per_generation),
         .expected = "one of them",
         .remedy = "remove one: generation_batch_size = micro_batch_size × ranks × steps_per_generation"}};
  }
  const std::int64_t per_micro_step = c.micro_batch_size * c.world_size;  // b·W
  const std::int64_t unit = std::lcm(per_micro_step, c.num_generations);  // N must be a multiple of this
  const auto next_multiple = [&](std::int64_t n) { return (n + unit - 1) / unit * unit; };
  if (c.generation_batch_size) {
    if (auto p = detail::positive("trl.generation_batch_size", *c.generation_batch_size, 1)) return p;
    if (*c.generation_batch_size % unit == 0) return std::nullopt;
    return GeometryProblem{"trl.generation_batch_size",
                           {.what = "trl.generation_batch_size does not fit",
                            .found = number(*c.generation_batch_size),
                            .expected = "a multiple of micro_batch_size × ranks (" + number(per_micro_step) +
                                        ") and of trl.num_generations (" + number(c.num_generations) + ")",
                            .remedy = "the next that works is " + number(next_multiple(*c.generation_batch_size))}};
  }
  if (c.steps_per_generation) {
    if (auto p = detail::positive("trl.steps_per_generation", *c.steps_per_generation, 1)) return p;
  }
  const std::int64_t steps = c.steps_per_generation.value_or(c.gradient_accumulation_steps);
  const std::int64_t batch = per_micro_step * steps;
  if (batch % c.num_generations == 0) return std::nullopt;
  const std::string steps_key = c.steps_per_generation ? "trl.steps_per_generation" : "gradient_accumulation_steps";
  return GeometryProblem{"trl.num_generations",
                         {.what = "the generation batch is not divisible by trl.num_generations",
                          .found = "micro_batch_size " + number(c.micro_batch_size) + " × " +
                                   (c.world_size > 1 ? number(c.world_size) + " ranks × " : std::string()) + steps_key +
                                   " " + number(steps) + " = " + number(batch) + " completions",
                          .expected = "a multiple of " + number(c.num_generations),
                          .remedy = "set " + steps_key + ": " + number(next_multiple(batch) / per_micro_step) +
                                    " (the next that works), or change trl.num_generations"}};
}

[[nodiscard]] inline Geometry make_geometry(const GeometryConfig& config) {
  if (const auto problem = geometry_problem(config)) core::raise_usage("data", 14, problem->text);
  Geometry g{.micro_batch_size = config.micro_batch_size,
             .gradient_accumulation_steps = config.gradient_accumulation_steps,
             .world_size = config.world_size,
             .num_generations = config.num_generations,
             .num_iterations = config.num_iterations};
  const std::int64_t per_micro_step = config.micro_batch_size * config.world_size;
  g.steps_per_generation = config.generation_batch_size
                               ? *config.generation_batch_size / per_micro_step
                               : config.steps_per_generation.value_or(config.gradient_accumulation_steps);
  g.generation_batch_size = per_micro_step * g.steps_per_generation;
  g.prompts_per_generation = g.generation_batch_size / config.num_generations;
  return g;
}

}  // namespace rlalgo::data
