// Settings of rollouts by the numbers of their geometry.
#pragma once

#include <cstdint>

#include <rlalgo/sampler/rollouts.hpp>

namespace rlalgo::support {

inline sampler::RolloutsConfig geometry_config(std::int64_t micro_batch, std::int64_t accumulation,
                                               std::int64_t steps_per_generation, std::int64_t iterations,
                                               std::int64_t generations, bool shuffle = true) {
  sampler::RolloutsConfig out;
  out.geometry = {.micro_batch_size = micro_batch,
                  .gradient_accumulation_steps = accumulation,
                  .steps_per_generation = steps_per_generation,
                  .num_iterations = iterations,
                  .num_generations = generations};
  out.shuffle = shuffle;
  return out;
}

}  // namespace rlalgo::support
