// The geometry of online RL batches: how generations, micro-batches and optimizer steps interlock.
//
//   N = b·S completions per generation, P = N/G prompts;  micro-step m uses slice m mod S of generation ⌊m / (S·μ)⌋;
//   optimizer step k covers micro-steps k·a … k·a + a − 1
//
// Source: TRL `GRPOConfig`/`GRPOTrainer`.
// Symbols: b → micro_batch_size, a → gradient_accumulation_steps, S → steps_per_generation, μ → num_iterations, G →
// num_generations. G must divide N, not b: a group may straddle micro-batches.
// Departure: micro-steps are numbered through epochs, so no optimizer step is shorter than `a` at the end of an epoch.
// Errors (usage): [rlalgo.sampler.2] a value below its minimum, [rlalgo.sampler.3] steps_per_generation and
// generation_batch_size both set, [rlalgo.sampler.4] generation_batch_size is no multiple of micro_batch_size,
// [rlalgo.sampler.5] num_generations does not divide the generation batch.
#pragma once

#include <cstdint>
#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::sampler {

struct Geometry {
  std::int64_t micro_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  std::int64_t steps_per_generation = 1;
  std::int64_t num_iterations = 1;
  std::int64_t num_generations = 8;

  [[nodiscard]] std::int64_t completions() const { return micro_batch_size * steps_per_generation; }  // N
  [[nodiscard]] std::int64_t prompts() const { return completions() / num_generations; }              // P
  [[nodiscard]] std::int64_t micro_steps() const { return steps_per_generation * num_iterations; }    // of a generation
  [[nodiscard]] std::int64_t generation_of(std::int64_t micro_step) const { return micro_step / micro_steps(); }
  [[nodiscard]] std::int64_t slice_of(std::int64_t micro_step) const { return micro_step % steps_per_generation; }

  // Whether a row can be trained on by weights other than those that generated it: then old log-probs must be computed
  // when it is fresh. Otherwise the policy at loss time is the one that generated.
  [[nodiscard]] bool trains_after_update() const { return gradient_accumulation_steps % micro_steps() != 0; }

  [[nodiscard]] std::int64_t micro_steps_per_epoch(std::int64_t dataset_size) const {
    return dataset_size / prompts() * micro_steps();
  }
  // Optimizer steps until `epochs` epochs are complete.
  [[nodiscard]] std::int64_t steps(std::int64_t dataset_size, double epochs) const {
    const double micro = static_cast<double>(micro_steps_per_epoch(dataset_size)) * epochs;
    const double steps = micro / static_cast<double>(gradient_accumulation_steps);
    const auto whole = static_cast<std::int64_t>(steps);
    return static_cast<double>(whole) < steps ? whole + 1 : whole;
  }
  [[nodiscard]] double epoch(std::int64_t dataset_size, std::int64_t completed_steps) const {
    return static_cast<double>(completed_steps * gradient_accumulation_steps) /
           static_cast<double>(micro_steps_per_epoch(dataset_size));
  }

  // Fills S from the two ways to state it (0 = not set; neither: S = a) and checks the whole.
  static Geometry resolve(Geometry g, std::int64_t steps_per_generation, std::int64_t generation_batch_size,
                          std::int64_t fewest_generations = 2) {
    if (steps_per_generation != 0 && generation_batch_size != 0)
      core::raise_usage(
          "sampler", 3,
          {.what = "steps_per_generation and generation_batch_size say the same thing twice",
           .found = std::to_string(steps_per_generation) + " and " + std::to_string(generation_batch_size),
           .expected = "one of them"});
    at_least("micro_batch_size", g.micro_batch_size, 1);
    if (generation_batch_size != 0 && (generation_batch_size < 0 || generation_batch_size % g.micro_batch_size != 0))
      core::raise_usage("sampler", 4,
                        {.what = "generation_batch_size is not a multiple of micro_batch_size",
                         .found = std::to_string(generation_batch_size),
                         .expected = "a multiple of " + std::to_string(g.micro_batch_size)});
    g.steps_per_generation = generation_batch_size != 0  ? generation_batch_size / g.micro_batch_size
                             : steps_per_generation != 0 ? steps_per_generation
                                                         : g.gradient_accumulation_steps;
    g.check(fewest_generations);
    return g;
  }

  // One generation and one step that hold the whole of an evaluation split, `copies` completions per prompt, in
  // micro-batches of at most `largest_micro_batch` rows: every next(k) of such a sampler is one complete pass.
  static Geometry evaluation(std::int64_t dataset_size, std::int64_t copies, std::int64_t largest_micro_batch) {
    const std::int64_t total = dataset_size * copies;
    Geometry g;
    g.num_generations = copies;
    g.micro_batch_size = 1;
    for (std::int64_t b = 1; b <= largest_micro_batch && b <= total; ++b)
      if (total % b == 0) g.micro_batch_size = b;
    g.steps_per_generation = total / g.micro_batch_size;
    g.gradient_accumulation_steps = g.steps_per_generation;
    g.check(1);
    return g;
  }

  void check(std::int64_t fewest_generations) const {
    at_least("micro_batch_size", micro_batch_size, 1);
    at_least("gradient_accumulation_steps", gradient_accumulation_steps, 1);
    at_least("steps_per_generation", steps_per_generation, 1);
    at_least("num_iterations", num_iterations, 1);
    at_least("num_generations", num_generations, fewest_generations);
    if (completions() % num_generations != 0)
      core::raise_usage("sampler", 5,
                        {.what = "num_generations does not divide the generation batch",
                         .found = std::to_string(num_generations) + " generations per prompt in a batch of " +
                                  std::to_string(completions()),
                         .expected = "a divisor of micro_batch_size · steps_per_generation (steps_per_generation is "
                                     "gradient_accumulation_steps unless set)"});
  }

 private:
  static void at_least(const char* key, std::int64_t value, std::int64_t minimum) {
    if (value < minimum)
      core::raise_usage("sampler", 2,
                        {.what = std::string(key) + " is too small",
                         .found = std::to_string(value),
                         .expected = "at least " + std::to_string(minimum)});
  }
};

}  // namespace rlalgo::sampler
