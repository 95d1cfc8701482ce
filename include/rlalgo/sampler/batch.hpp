// What a sampler hands to the trainer for one optimizer step of online RL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::sampler {

// One call of the generator, scored: N rollouts in groups.
struct Generation {
  std::vector<data::Rollout> rollouts;  // [N]
  core::Groups groups;                  // over rollouts
  core::RewardTable rewards;            // [N, K]
};

// The rows of one optimizer step, already cut into micro-batches. Pointers stay valid until the next call of next().
struct RolloutBatch {
  std::vector<std::vector<data::Rollout*>> parts;  // micro-batches
  std::vector<std::shared_ptr<Generation>> fresh;  // generations made for this step: advantages are not set yet
  core::Metrics metrics;                           // of the fresh generations: reward/…, completions/…, num_tokens
  double generation_seconds = 0.0;
  double reward_seconds = 0.0;
  std::vector<std::string> warnings;  // one line each, for the log
};

}  // namespace rlalgo::sampler
