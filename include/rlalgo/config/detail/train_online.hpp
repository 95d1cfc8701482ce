// config::train for the methods that generate: GRPO and its kin, GDPO, RLOO.
//
// Errors: those of assembly/prompt_tokens.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/conversations.hpp>
#include <rlalgo/assembly/gym.hpp>
#include <rlalgo/assembly/load_prompts.hpp>
#include <rlalgo/assembly/matched_completions.hpp>
#include <rlalgo/assembly/prompt_tokens.hpp>
#include <rlalgo/assembly/reference.hpp>
#include <rlalgo/assembly/rolled_out.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/completions.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/detail/overview_parts.hpp>
#include <rlalgo/config/detail/run_model.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/entropy.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/nemo_gym.hpp>
#include <rlalgo/config/online.hpp>
#include <rlalgo/config/policy_gradient.hpp>

namespace rlalgo::config::detail {

// Who answers the model, or makes its completions, and what rewards them.
struct Players {
  std::shared_ptr<environment::Environments> environments;
  std::shared_ptr<remote::RolloutFunction> function;
  std::shared_ptr<assembly::Gym> gym;
  std::vector<sampler::WeightedReward> rewards;

  void load(const RunConfig& config, const std::function<void(const std::string&)>& note, Refusals& refusals) {
    refusals.judge_found(config.place(config.trl.has_environment() ? "trl.environment_factory" : "trl.tools"),
                         [&] { environments = config::environments(config, note); });
    refusals.judge_found(config.place("trl.rollout_func"), [&] { function = rollout_function(config); });
  }
};

// Each reward function by itself: all that cannot be loaded.
inline void judge_rewards(const RunConfig& config, Refusals& refusals) {
  for (const std::string& name : config.trl.reward_funcs) {
    if (assembly::names_reward_model(name) || (config.nemo_gym.enabled && names_gym_reward(name))) continue;
    RunConfig one = config;
    one.trl.reward_funcs = {name};
    one.trl.reward_weights = {};
    refusals.judge_found(config.place("trl.reward_funcs"), [&] { (void)weighted_rewards(one); });
  }
}

template <class Unused>
void Training<Unused>::judge_functions(const RunConfig& config, Refusals& refusals) {
  if (is_preference(config) || config.nemo_gym.enabled || refusals.distrusts("trl.")) return;
  Players().load(config, {}, refusals);
  if (!refusals.distrusts("trl.reward_funcs") && !refusals.distrusts("trl.reward_kwargs"))
    judge_rewards(config, refusals);
}

[[nodiscard]] inline assembly::Prompts load_prompts(const RunConfig& config, const TrainMessages& messages) {
  assembly::Prompts out;
  if (config.nemo_gym.enabled)
    out = assembly::load_gym_prompts(gym_of(config));
  else if (!config.datasets.empty() || !config.trl.prompts_itself())
    out = assembly::load_prompts(prompts_of(config));
  else
    out.train = assembly::prompts_of_resets();
  messages.note_all(out.notes);
  return out;
}

[[nodiscard]] inline Players load_players(const RunConfig& config, const assembly::Prompts& prompts,
                                          const std::function<void(const std::string&)>& note) {
  Players out;
  Refusals refusals(config.file);
  out.load(config, note, refusals);
  if (config.nemo_gym.enabled) refusals.raise();
  // A Gym whose agents ask this process waits for the server that they ask, and so comes after it.
  if (config.nemo_gym.enabled && !config.trl.serves())
    out.gym = assembly::find_gym(gym_of(config), prompts, world_of(config)->rank() == 0, note);
  const bool rewarded = refusals.judge_found(config.place("trl.reward_funcs"), [&] {
    out.rewards = weighted_rewards(config, out.environments.get(), out.gym ? out.gym->verifier : nullptr, note);
  });
  if (!rewarded) judge_rewards(config, refusals);
  refusals.raise();
  return out;
}

inline void note_columns_of_players(const RunConfig& config, const assembly::Prompts& prompts,
                                    const TrainMessages& messages) {
  if (columns_of(config) != assembly::RowColumns::players || prompts.train.empty()) return;
  for (const char* column : {"tools", "chat_template_kwargs"})
    if (prompts.train.front().columns.contains(column))
      messages.note_some("the column " + std::string(column) +
                         " is data for the environment or function; no prompt is rendered with it");
}

// What there is of an online run before any weights: prompts as token ids, and who makes completions and rewards of them.
struct OnlineStart {
  // What is given must outlive it.
  OnlineStart(const RunConfig& config, const TrainMessages& messages, OtherTask* task)
      : prompts(load_prompts(config, messages)),
        players(load_players(config, prompts, messages.note)),
        model(config, messages, task),
        matched(model.text, matched_of(config, model.text.stop_ids), prompts),
        conversations(model.text, config.trl.chat_template_kwargs, players.environments.get(),
                      config.place(config.trl.tools.empty() ? "trl.environment_factory" : "trl.tools")) {
    note_columns_of_players(config, prompts, messages);
    assembly::tokenize_prompts(prompts, model.text, prompt_tokens_of(config), conversations, messages.note);
    matched.mask_thoughts(prompts);
  }
  OnlineStart(const OnlineStart&) = delete;

  assembly::Prompts prompts;
  Players players;
  RunModel model;
  assembly::MatchedCompletions matched;
  assembly::Conversations conversations;
};

// What a completion is. `run` must outlive it.
[[nodiscard]] inline assembly::AnyForm form_of(const RunConfig& config, OnlineStart& run,
                                               const std::function<void(const std::string&)>& note) {
  const RunModel& model = run.model;
  if (config.nemo_gym.multi_turn)
    return assembly::Agents{[&config, &run, note](const std::string& address) {
      std::shared_ptr<assembly::Gym>& gym = run.players.gym;
      if (gym == nullptr)
        gym = assembly::find_gym(gym_of(config), run.prompts, run.model.world->rank() == 0, note, address);
      return assembly::gym_agents(gym_of(config), *gym, run.model.text, note);
    }};
  if (run.players.function)
    return assembly::RolledOut{run.players.function,
                               assembly::rollout_texts(model.text, config.trl.chat_template_kwargs, *model.world)};
  if (run.players.environments)
    return assembly::Turns{.environments = run.players.environments,
                           .dialogues = run.conversations.dialogues(),
                           .config = {.max_turns = config.trl.max_turns,
                                      .max_length = model.text.max_positions,
                                      .max_message = config.trl.max_new_tokens.value_or(0)}};
  return assembly::Plain{};
}

[[nodiscard]] inline assembly::Overview overview_of(const RunConfig& config, const OnlineStart& run,
                                                    const trainer::BasicOnlineConfig<optim::AnyOptimizer>& settings) {
  assembly::Overview out =
      assembly::overview_of(run.model.text, settings.trainer.loop, run.model.world->size(), settings.rollouts.geometry,
                            completion_length(config), run.prompts.train, run.prompts.evaluation.size());
  out.grows = config.datasets.empty() && config.trl.prompts_itself();
  return out;
}

template <class Unused>
run::Outcome Training<Unused>::online(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  OnlineStart run(config, messages, task);
  assembly::Prompts& prompts = run.prompts;
  RunModel& model = run.model;
  auto settings =
      online_config(config, model.text, static_cast<std::int64_t>(prompts.train.size()), !prompts.evaluation.empty());
  settings.rollouts.completion_limit = run.matched.completion_limit();
  const std::int64_t steps = settings.trainer.loop.max_steps;
  assembly::Overview overview = overview_of(config, run, settings);
  if (model.shows_rows_only(overview)) return {};
  if (!config.max_steps) messages.note_some(never_handed_over(config, steps));
  model.require_inputs(settings.trainer.loop, fingerprints(config, prompts.train, prompts.evaluation));
  check_server(config);

  model.load(settings.trainer);
  if (config.trl.is_asynchronous() && model.sharding != nullptr) run.matched.load_apart();
  model.shard();
  const assembly::GenerationMemory memory =
      generation_memory_of(config, *model.text.decoder, overview, settings.rollouts.geometry);
  assembly::Completions completions(model.text, drawer_of(config, *model.text.decoder, memory),
                                    form_of(config, run, messages.note), timing_of(config), layout_of(model.sharding),
                                    {.world = model.world});
  const auto asynchronous = asynchronous_config(config, completions, steps, messages.note);
  run.matched.reward(run.players.rewards, completions, run.players.environments.get(), model.sharding.get(),
                     messages.note);
  const std::shared_ptr<model::Decoder> reference =
      config.beta == 0.0 ? nullptr : assembly::frozen_reference(model.text, {}, model.sharding.get());
  if (model.plans(overview, reference, memory)) return {};
  const EntropyCoefficient coefficient = entropy_coefficient(config);
  auto inputs = assembly::online_inputs<std::shared_ptr<model::Policy>>(
      model.text, completions, std::move(prompts.train), std::move(run.players.rewards), model.sharding);
  inputs.reference = reference;
  inputs.evaluation_prompts = std::move(prompts.evaluation);
  inputs.companions = companions(config, coefficient, model.text, reference, model.sharding.get());
  inputs.on_experience = run.matched.on_experience(model.world);
  return with_policy_gradient(config, coefficient, [&](auto loss) {
    return model.carry_out(trainer::make_asynchronous(settings, asynchronous, std::move(loss), estimator(config),
                                                      reward_aggregation(config), std::move(inputs)));
  });
}

}  // namespace rlalgo::config::detail
