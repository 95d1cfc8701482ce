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
#include <rlalgo/assembly/prompt_tokens.hpp>
#include <rlalgo/assembly/reference.hpp>
#include <rlalgo/assembly/rolled_out.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/completions.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/detail/matching_run.hpp>
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

[[nodiscard]] inline assembly::Prompts load_prompts(const RunConfig& config) {
  if (config.nemo_gym.enabled) return assembly::load_gym_prompts(gym_of(config));
  if (!config.datasets.empty() || !config.trl.prompts_itself()) return assembly::load_prompts(prompts_of(config));
  assembly::Prompts out;
  out.train = assembly::prompts_of_resets();
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

// What a completion is.
[[nodiscard]] inline assembly::AnyForm form_of(const RunConfig& config, const RunModel& model, Players& players,
                                               const assembly::Prompts& prompts,
                                               const assembly::Conversations& conversations,
                                               const std::function<void(const std::string&)>& note) {
  if (config.nemo_gym.multi_turn)
    return assembly::Agents{[&config, &model, &players, &prompts, note](const std::string& address) {
      if (players.gym == nullptr)
        players.gym = assembly::find_gym(gym_of(config), prompts, model.world->rank() == 0, note, address);
      return assembly::gym_agents(gym_of(config), *players.gym, model.text, note);
    }};
  if (players.function)
    return assembly::RolledOut{players.function,
                               assembly::rollout_texts(model.text, config.trl.chat_template_kwargs, *model.world)};
  if (players.environments)
    return assembly::Turns{.environments = players.environments,
                           .dialogues = conversations.dialogues(),
                           .config = {.max_turns = config.trl.max_turns,
                                      .max_length = model.text.max_positions,
                                      .max_message = config.trl.max_new_tokens.value_or(0)}};
  return assembly::Plain{};
}

inline void note_columns_of_players(const RunConfig& config, const assembly::Prompts& prompts,
                                    const TrainMessages& messages) {
  if (columns_of(config) != assembly::RowColumns::players || prompts.train.empty()) return;
  for (const char* column : {"tools", "chat_template_kwargs"})
    if (prompts.train.front().columns.contains(column))
      messages.note_some("the column " + std::string(column) +
                         " is data for the environment or function; no prompt is rendered with it");
}

template <class Unused>
run::Outcome Training<Unused>::online(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  assembly::Prompts prompts = load_prompts(config);
  messages.note_all(prompts.notes);
  Players players = load_players(config, prompts, messages.note);
  RunModel model(config, messages);
  MatchingRun matching(config, model, messages);
  matching.require_truths(prompts);
  assembly::Conversations conversations(
      model.text, config.trl.chat_template_kwargs, players.environments.get(),
      config.place(config.trl.tools.empty() ? "trl.environment_factory" : "trl.tools"));
  note_columns_of_players(config, prompts, messages);
  const assembly::PromptTokensConfig tokens = prompt_tokens_of(config);
  assembly::tokenize_prompts(prompts.train, prompts.train_rows, model.text, tokens, conversations, messages.note);
  assembly::tokenize_prompts(prompts.evaluation, prompts.evaluation_rows, model.text, tokens, conversations,
                             messages.note);
  matching.mask_thoughts(prompts);
  auto settings =
      online_config(config, model.text, static_cast<std::int64_t>(prompts.train.size()), !prompts.evaluation.empty());
  settings.rollouts.completion_limit = matching.completion_limit();
  run::LoopConfig& loop = settings.trainer.loop;
  assembly::Overview overview =
      assembly::overview_of(model.text, loop, model.world->size(), settings.rollouts.geometry,
                            completion_length(config), prompts.train, prompts.evaluation.size());
  overview.grows = config.datasets.empty() && config.trl.prompts_itself();
  if (shows_rows_only(task, messages, overview)) return {};
  if (!config.max_steps) messages.note_some(never_handed_over(config, loop.max_steps));
  model.require_inputs(loop, fingerprints(config, prompts.train, prompts.evaluation), task);
  check_server(config);

  model.load(settings.trainer, task);
  if (settings.trainer.router_aux_loss_coef != 0.0) settings.trainer.skip_zero_advantages = false;
  const bool asynchronous = config.trl.generates_beside();
  matching.load_apart();
  model.shard();
  const std::shared_ptr<model::Decoder>& decoder = model.text.decoder;
  const assembly::GenerationMemory memory =
      generation_memory_of(config, *decoder, overview, settings.rollouts.geometry);
  assembly::Completions completions(model.text, drawer_of(config, *decoder, memory),
                                    form_of(config, model, players, prompts, conversations, messages.note),
                                    timing_of(config), layout_of(model.sharding), {.world = model.world});
  const sampler::PrefetchConfig prefetch =
      asynchronous ? completions.ahead(prefetch_config(config, messages.note)) : sampler::PrefetchConfig{.depth = 0};
  matching.reward(players.rewards, completions, players.environments.get());

  const std::shared_ptr<model::Decoder> reference =
      config.beta == 0.0 ? nullptr : assembly::frozen_reference(model.text, {}, model.sharding.get());
  const EntropyCoefficient coefficient = entropy_coefficient(config);
  auto inputs = assembly::online_inputs<std::shared_ptr<model::Policy>>(model.text, completions, {},
                                                                        std::move(players.rewards), model.sharding);
  inputs.reference = reference;
  inputs.evaluation_prompts = std::move(prompts.evaluation);
  inputs.companions = companions(config, coefficient, model.text, reference, model.sharding.get());
  inputs.on_experience = matching.on_experience();
  const bool copied = reference != nullptr && decoder->adapter() == nullptr;
  if (plans(overview, config, *decoder, copied, task, messages, memory)) return {};
  inputs.prompts = std::move(prompts.train);
  return with_policy_gradient(config, coefficient, [&](auto loss) {
    auto trainer =
        trainer::make_asynchronous(settings, asynchronous_config(config, prefetch, loop.max_steps), std::move(loss),
                                   estimator(config), reward_aggregation(config), std::move(inputs));
    return carry_out(trainer, config, *decoder, task, messages);
  });
}

}  // namespace rlalgo::config::detail
