// config::train for the methods that generate: GRPO and its kin, GDPO, RLOO.
//
// Errors: [rlalgo.config.27] a prompt leaves no room for a completion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/completion_source.hpp>
#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/detail/overview_parts.hpp>
#include <rlalgo/config/detail/router_balance.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/entropy.hpp>
#include <rlalgo/config/environment.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/load_data.hpp>
#include <rlalgo/config/model_card.hpp>
#include <rlalgo/config/nemo_gym.hpp>
#include <rlalgo/config/online.hpp>
#include <rlalgo/config/policy_gradient.hpp>
#include <rlalgo/config/prompt_tokens.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/rollout_function.hpp>
#include <rlalgo/config/sharding.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>

namespace rlalgo::config::detail {

// Who answers the model, or makes its completions.
inline void load_players(const RunConfig& config, std::shared_ptr<environment::Environments>& environments,
                         std::shared_ptr<remote::RolloutFunction>& function,
                         const std::function<void(const std::string&)>& note, Refusals& refusals) {
  const std::vector<std::filesystem::path> paths = python_search_paths(config);
  refusals.judge_found(config.place(config.trl.has_environment() ? "trl.environment_factory" : "trl.tools"),
                       [&] { environments = config::environments(config, paths, note); });
  refusals.judge_found(config.place("trl.rollout_func"), [&] { function = config::rollout_function(config, paths); });
}

// Each reward function by itself: all that cannot be loaded.
inline void judge_rewards(const RunConfig& config, Refusals& refusals) {
  for (const std::string& name : config.trl.reward_funcs) {
    if (names_reward_model(name) || (config.nemo_gym.enabled && names_gym_reward(name))) continue;
    RunConfig one = config;
    one.trl.reward_funcs = {name};
    one.trl.reward_weights = {};
    refusals.judge_found(config.place("trl.reward_funcs"),
                         [&] { (void)weighted_rewards(one, std::filesystem::path(config.file)); });
  }
}

template <class Unused>
void Training<Unused>::judge_functions(const RunConfig& config, Refusals& refusals) {
  if (is_preference(config) || config.nemo_gym.enabled || refusals.distrusts("trl.")) return;
  std::shared_ptr<environment::Environments> environments;
  std::shared_ptr<remote::RolloutFunction> function;
  load_players(config, environments, function, {}, refusals);
  if (!refusals.distrusts("trl.reward_funcs") && !refusals.distrusts("trl.reward_kwargs"))
    judge_rewards(config, refusals);
}

template <class Unused>
run::Outcome Training<Unused>::online(const RunConfig& config, const TrainMessages& messages, OtherTask* task) {
  Prompts prompts;
  if (config.nemo_gym.enabled)
    prompts = load_gym_prompts(config);
  else if (config.datasets.empty() && config.trl.prompts_itself())
    prompts.train = prompts_of_resets();
  else
    prompts = load_prompts(config);
  if (messages.note)
    for (const std::string& text : prompts.notes) messages.note(text);
  const std::filesystem::path file = config.file;
  std::shared_ptr<environment::Environments> environments;
  std::shared_ptr<remote::RolloutFunction> function;
  std::vector<sampler::WeightedReward> rewards;
  Refusals refusals(config.file);
  load_players(config, environments, function, messages.note, refusals);
  if (config.nemo_gym.enabled) refusals.raise();
  // A Gym whose agents ask this process waits for the server that they ask, and so comes after it.
  auto gym = config.trl.serves() ? nullptr : nemo_gym(config, prompts.train, prompts.evaluation, messages.note);
  const bool rewarded = refusals.judge_found(config.place("trl.reward_funcs"), [&] {
    rewards = weighted_rewards(config, file, environments.get(), gym ? gym->verifier : nullptr, messages.note);
  });
  if (!rewarded) judge_rewards(config, refusals);
  refusals.raise();
  const ModelPlaces places = find_model(config);
  LanguageModel model = load_text_half(config, places);
  if (messages.note)
    for (const std::string& text : model.notes) messages.note(text);
  const auto truths = std::make_shared<Truths>();
  if (matches_features(config)) {
    require_truths(config, model, *truths, prompts.train);
    require_truths(config, model, *truths, prompts.evaluation);
  }
  Conversations conversations(model, config, environments.get());
  if (plays_rows(config) && !config.nemo_gym.enabled && messages.note)
    for (const char* column : {"tools", "chat_template_kwargs"})
      if (!prompts.train.empty() && prompts.train.front().columns.contains(column))
        messages.note("the column " + std::string(column) +
                      " is data for the environment or function; no prompt is rendered with it");
  tokenize_prompts(prompts.train, prompts.train_rows, model, config, conversations, messages.note);
  tokenize_prompts(prompts.evaluation, prompts.evaluation_rows, model, config, conversations, messages.note);
  mask_thoughts(config, model, prompts.train);
  mask_thoughts(config, model, prompts.evaluation);
  auto settings =
      online_config(config, model, static_cast<std::int64_t>(prompts.train.size()), !prompts.evaluation.empty());
  settings.rollouts.completion_limit = completion_limit(config, truths);
  Overview overview = overview_of_prompts(config, model, settings.trainer.loop, settings.rollouts.geometry,
                                          prompts.train, as_count(prompts.evaluation.size()));
  overview.grows = config.datasets.empty() && config.trl.prompts_itself();
  if (shows_rows_only(task, messages, overview)) return {};
  if (const std::string text = never_handed_over(config, settings.trainer.loop.max_steps);
      !config.max_steps && !text.empty() && messages.note)
    messages.note(text);
  const data::Json inputs_read = fingerprints(config, prompts.train, prompts.evaluation);
  require_same_inputs(*world_of(config), inputs_read);
  settings.trainer.loop.settings.update(inputs_read);
  if (!evaluates(task)) run::check_resume(settings.trainer.loop);
  check_server(config);

  model.card = model_card(config, settings.trainer.loop.max_steps);
  model.decoder = load_decoder(config, places);
  if (task == nullptr)
    if (const std::string text = judge_bits(config, *model.decoder); !text.empty() && messages.note)
      messages.note(text);
  settings.trainer.router_aux_loss_coef = router_aux_loss_coef(config, model.decoder->config());
  if (settings.trainer.router_aux_loss_coef != 0.0) settings.trainer.skip_zero_advantages = false;
  const auto world = world_of(config);
  const auto sharding = Sharding::convene(config, world, model.decoder->device());
  std::optional<feature::FeatureNetwork> network;
  // Beside training it is asked on the thread that generates, where the ranks do not meet: each has all of it.
  if (matches_features(config) && config.trl.generates_beside() && sharding != nullptr)
    network = feature_network(config, model, nullptr, true);
  if (sharding != nullptr) {
    sharding->hold(*model.decoder);
    model.files = sharding->files();
  }
  CompletionSource source(config, model);
  if (sharding != nullptr && sharding->weights()) source.hold_in(sharding->policy(), world);
  if (environments)
    source.play(environments, conversations.dialogues(),
                {.max_turns = config.trl.max_turns,
                 .max_length = model.max_positions,
                 .max_message = config.trl.max_new_tokens.value_or(0)});
  if (config.trl.serves()) gym = nemo_gym(config, prompts.train, prompts.evaluation, messages.note, source.served_at());
  if (config.nemo_gym.multi_turn) source.run_agents(gym_agents(config, *gym, model, messages.note));
  if (function) source.roll(function, rollout_texts(config, model));
  sampler::PrefetchConfig prefetch = prefetch_config(config, source, messages.note);
  if (config.trl.generates_beside() && world->size() > 1) {
    prefetch.world = world->duplicate("generation");
    prefetch.meanwhile = [world, own = std::move(prefetch.meanwhile)](std::int64_t step) {
      world->check();
      if (own) own(step);
    };
  }
  if (config.trl.generates_beside() || config.trl.generates_elsewhere() || config.trl.serves())
    source.beside_training(call_schedule(config), prefetch.world != nullptr ? world : nullptr, prefetch.world);
  if (matches_features(config)) {
    if (!network) network = feature_network(config, model, sharding.get());
    if (const std::string text = repeated_layers(config, *network); !text.empty() && messages.note) messages.note(text);
    if (environments && !environments->reward_name().empty() && messages.note)
      messages.note("rl: ebft: features are the reward; that of " + environments->reward_name() + " has no effect");
    rewards =
        matching_rewards(config, model, std::move(*network), source.generator(), sampling(config, model.stop_ids));
  }

  const std::shared_ptr<model::Decoder> reference = config.beta == 0.0    ? nullptr
                                                    : sharding != nullptr ? sharding->reference(*model.decoder)
                                                                          : model.decoder->reference();
  const EntropyCoefficient coefficient = entropy_coefficient(config);
  trainer::OnlineInputs<inference::AnyGenerator, sync::AnySync, std::shared_ptr<model::Policy>> inputs{
      .policy = model.decoder,
      .generator = source.generator(),
      .prompts = {},
      .rewards = std::move(rewards),
      .decode = [&](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids); },
      .reference = reference,
      .evaluation_prompts = std::move(prompts.evaluation),
      .sync = source.sync(),
      .save_model = [&](const std::filesystem::path& directory) { model.save(directory, model::SavedDtype::computed); },
      .save_output = [&](const std::filesystem::path& directory) { model.save(directory, model.output_dtype); },
      .companions = companions(config, coefficient, model, reference, sharding.get()),
      .world = world,
      .placement = sharding != nullptr ? sharding->placement() : nullptr};
  if (matches_features(config))
    inputs.on_experience = [file = std::make_shared<sampler::RolloutsFile>(config.output_dir), &config, truths, world](

                               std::int64_t step, trainer::Experience<data::Rollout>& batch) {
      add_advantage_spread(batch.rows, batch.metrics);
      if (!config.ebft.save_rollouts || world->rank() > 0) return;
      file->write(step,
                  sampler::rollout_records(step, batch.rows, config.ebft.alignment_coef, config.ebft.diversity_coef,
                                           [&](const data::Rollout& row) { return truths->of(row.columns); }));
    };
  if (plans(overview, config, *model.decoder, reference != nullptr && model.decoder->adapter() == nullptr, task,
            messages))
    return {};
  inputs.prompts = std::move(prompts.train);
  return with_policy_gradient(config, coefficient, [&](auto loss) {
    auto trainer =
        trainer::make_asynchronous(settings, asynchronous_config(config, prefetch, settings.trainer.loop.max_steps),
                                   std::move(loss), estimator(config), reward_aggregation(config), std::move(inputs));
    return carry_out(trainer, config, *model.decoder, task, messages);
  });
}

}  // namespace rlalgo::config::detail
