// A row of an episode as samples.jsonl shows it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/data/decode.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/run/samples_log.hpp>

namespace rlalgo::sampler {

// The completion in the parts that the model drew and those that others wrote, where it has both. A mask without a drawn token
// is that of a completion which carries no loss, and says nothing of who spoke.
[[nodiscard]] inline std::vector<run::Turn> turns_of(const data::Row& row, const data::Decode& decode) {
  const std::vector<std::uint8_t>& mask = row.loss_mask;
  std::vector<run::Turn> out;
  if (mask.size() != row.completion_ids.size() || std::find(mask.begin(), mask.end(), 0) == mask.end() ||
      std::find(mask.begin(), mask.end(), 1) == mask.end())
    return out;
  const std::span<const data::TokenId> ids = row.completion_ids;
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && mask[end] == mask[begin]) ++end;
    out.push_back({mask[begin] != 0, decode(ids.subspan(begin, end - begin))});
  }
  return out;
}

// `reward_names`: of the reward functions, in the order of Episode::rewards. `decode`: for the turns, and for a prompt that an
// episode made its own (what its environment said first is in it); null: no turns are shown, and the dataset's prompt is.
[[nodiscard]] inline run::Sample to_sample(const data::EpisodeRow& row, const std::vector<std::string>& reward_names,
                                           const data::Decode& decode = nullptr) {
  const data::Episode& episode = row.episode();
  run::Sample sample{run::readable_prompt(episode.prompt), row->text,     {}, episode.advantage,
                     row->finish == data::Finish::length,  episode.logged};
  for (std::size_t k = 0; k < std::min(reward_names.size(), episode.rewards.size()); ++k)
    sample.rewards.emplace_back(reward_names[k], episode.rewards[k]);
  if (decode) sample.turns = turns_of(*row, decode);
  if (decode && row->own_prompt) sample.prompt = decode(row->prompt_ids);
  return sample;
}

}  // namespace rlalgo::sampler
