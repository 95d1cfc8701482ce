// A rollout as samples.jsonl shows it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/run/samples_log.hpp>

namespace rlalgo::trainer {

// `reward_names`: of the reward functions, in the order of Rollout::rewards.
[[nodiscard]] inline run::Sample to_sample(const data::Rollout& rollout, const std::vector<std::string>& reward_names) {
  run::Sample sample{run::readable_prompt(rollout.prompt),   rollout.text,  {}, rollout.advantage,
                     rollout.finish == data::Finish::length, rollout.logged};
  for (std::size_t k = 0; k < std::min(reward_names.size(), rollout.rewards.size()); ++k)
    sample.rewards.emplace_back(reward_names[k], rollout.rewards[k]);
  return sample;
}

}  // namespace rlalgo::trainer
