// Completions that a NeMo Gym's agents play: POST /run for each, and what came of it as rows, mostly one.
//
//   prompt  m₁  e₁  m₂  e₂ … mₖ      mᵢ drawn by the model that the agent asks, eᵢ what the environment added
//
// An agent asks a generation server through the Gym's model server, and hands back, with every message, the token ids that
// the model was shown and those that it drew, with their log-probs. The ids that a later call was shown begin with all ids
// before it: they are compared, and what follows is the environment's (mask 0). So nothing is tokenized again. Where they
// do not, the history was edited (an agent that summarises it, drops thoughts, or asks for something else in between), and
// the call begins a further row of the episode, with what it was shown as the prompt.
//
// The generator draws nothing itself; whose weights the agents draw from is the server's (WeightSource::remote), where the
// trainer's are handed over as to any server. Settings of the model are those of the server that agents ask, but for
// temperature, top_p and the length of a message (max_output_tokens, unless the row has its own).
//
// The order of a group is a function of its episodes, not of when they ended: where the server's draws repeat themselves
// (serve/repeatable_draws.hpp), steps do.
//
// An episode that failed leaves its group; the classes are those of gym.hpp, and `no_token_ids` (the model server hands
// none on), `foreign_ids` (no ids of our vocabulary), `empty` (the model drew nothing), `too_long` (one of its rows is).
//
// Errors: [rlalgo.remote.83] all episodes of a generation failed; [.84] a row names no agent; [.71] an unknown one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/remote/gym.hpp>

namespace rlalgo::remote {

struct GymAgentsConfig {
  double seconds = 300.0;     // one episode
  std::size_t at_once = 128;  // episodes
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;    // tokens of prompt and completion together
  bool failures_end_the_run = true;  // when all episodes of a generation fail
  std::function<void(const std::string&)> tell = {};
};

// The agent of a row: what it says, or the one that uses the row's resources server, or the only one.
[[nodiscard]] std::string gym_agent_of(const nlohmann::ordered_json& row, const GymDirectory& directory);

// What an agent's reply makes of a completion; Episode::failure says what is wrong with it.
[[nodiscard]] data::Completion gym_episode(const nlohmann::ordered_json& reply, const GymAgentsConfig& config,
                                           std::span<const data::TokenId> stop_ids);

class GymAgents {
 public:
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;

  GymAgents(std::shared_ptr<Gym> gym, GymAgentsConfig config) : gym_(std::move(gym)), config_(std::move(config)) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key);

 private:
  // `longest`: tokens of a message, where the row does not say.
  data::Completion play(const data::Json& row, const inference::SamplingConfig& sampling, std::int64_t longest);

  std::shared_ptr<Gym> gym_;
  GymAgentsConfig config_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/gym_agents_impl.hpp>
#endif
