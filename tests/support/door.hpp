// Runs one step of a door on a bandit and computes the same gradient norm from the paper's formula, by plain autograd.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/trainer/online.hpp>
#include <support/bandit.hpp>

namespace rlalgo::support {

struct DoorStep {
  rlalgo::run::StepResult result;
  std::vector<rlalgo::data::Episode> episodes;  // of the step, advantages set
};

inline constexpr std::int64_t door_arms = 4;
inline constexpr std::int64_t door_group = 6;

inline double door_reward(const std::vector<std::int32_t>& ids) {
  double sum = 0;
  for (const std::int32_t id : ids) sum += id;
  return sum / 3.0;
}

template <class T>
inline constexpr bool scaled_by_group = false;
template <class L, class S, class G, class Y>
inline constexpr bool scaled_by_group<rlalgo::trainer::Trainer<L, rlalgo::advantage::GroupRelative<>, S, G, Y>> = true;

// Completions have 1 to 3 tokens.
template <class M>
DoorStep run_door(std::int64_t parts = 1, rlalgo::TrainConfig<M> config = {}) {
  const auto bandit = std::make_shared<Bandit>(door_arms, at::kDouble);
  BanditPulls pulls{*bandit, 3};
  std::vector<rlalgo::data::Episode> episodes;
  const auto reward = rlalgo::reward::from("sum", [&](const rlalgo::reward::Sample& s) {
    rlalgo::data::Episode episode;
    episode.first().completion_ids.assign(s.ids.begin(), s.ids.end());
    episodes.push_back(episode);
    return door_reward(episode.first().completion_ids);
  });
  config.run.rollouts.geometry = {.micro_batch_size = 2 * door_group / parts,
                                  .gradient_accumulation_steps = parts,
                                  .steps_per_generation = parts,
                                  .num_generations = door_group};
  config.run.rollouts.sampling.max_new_tokens = 3;
  config.run.trainer.max_grad_norm = 0;
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.run.trainer.loop.max_steps = 1;
  std::vector<rlalgo::data::TokenizedPrompt> prompts(2);
  for (auto& p : prompts) p = {.row = 0, .ids = {0}, .prompt = "p", .columns = {}};
  auto trainer = rlalgo::make_trainer<M>(
      config, rlalgo::trainer::OnlineInputs<BanditPulls>{
                  .policy = bandit, .generator = pulls, .prompts = prompts, .rewards = {{reward}}});
  DoorStep out{trainer.step(0), std::move(episodes)};
  for (std::size_t begin = 0; begin < out.episodes.size(); begin += door_group) {
    double mean = 0, square = 0;
    for (std::size_t i = begin; i < begin + door_group; ++i)
      mean += door_reward(out.episodes[i].first().completion_ids) / door_group;
    for (std::size_t i = begin; i < begin + door_group; ++i)
      square += std::pow(door_reward(out.episodes[i].first().completion_ids) - mean, 2);
    const double deviation = std::sqrt(square / (door_group - 1));
    for (std::size_t i = begin; i < begin + door_group; ++i) {
      const double centred = door_reward(out.episodes[i].first().completion_ids) - mean;
      out.episodes[i].advantage = centred;
      if constexpr (scaled_by_group<decltype(trainer)>) out.episodes[i].advantage /= deviation + 1e-4;
    }
  }
  return out;
}

// ‖∇‖ of −Σ_i A_i·weight(n_i)·Σ_t x_it at uniform logits: on-policy, every clipped surrogate has this gradient.
inline double expected_norm(const std::vector<rlalgo::data::Episode>& episodes,
                            const std::function<double(double n)>& weight) {
  std::vector<double> gradient(door_arms, 0.0);
  for (const auto& episode : episodes)
    for (const std::int32_t id : episode.first().completion_ids)
      for (std::int32_t arm = 0; arm < door_arms; ++arm)
        gradient[static_cast<std::size_t>(arm)] -= episode.advantage *
                                                   weight(static_cast<double>(episode.first().completion_ids.size())) *
                                                   ((arm == id ? 1.0 : 0.0) - 1.0 / door_arms);
  double square = 0;
  for (const double g : gradient) square += g * g;
  return std::sqrt(square);
}

// √(Σ A²/(n − 1)) of advantages whose mean is 0.
inline double deviation(const std::vector<rlalgo::data::Episode>& episodes) {
  double square = 0;
  for (const auto& episode : episodes) square += episode.advantage * episode.advantage;
  return std::sqrt(square / (static_cast<double>(episodes.size()) - 1));
}

inline double token_count(const std::vector<rlalgo::data::Episode>& episodes) {
  double n = 0;
  for (const auto& episode : episodes) n += static_cast<double>(episode.first().completion_ids.size());
  return n;
}

}  // namespace rlalgo::support
