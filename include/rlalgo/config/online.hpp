// From a configuration to the settings of an online run: geometry, sampling, optimizer, schedule, loop, rewards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/completion_source.hpp>
#include <rlalgo/config/detail/read_nemo_gym.hpp>
#include <rlalgo/config/detail/validate_asynchronous.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/entropy.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/python_dataset.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/sharding.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/several.hpp>
#include <rlalgo/feature/reward_model.hpp>
#include <rlalgo/remote/gym_rewards.hpp>
#include <rlalgo/remote/reward_functions.hpp>
#include <rlalgo/reward/column.hpp>
#include <rlalgo/reward/failure_policy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sync/call_schedule.hpp>
#include <rlalgo/trainer/asynchronous.hpp>
#include <rlalgo/trainer/entropy_control.hpp>
#include <rlalgo/trainer/reference_sync.hpp>

namespace rlalgo::config {

// `stop_ids`: the model's own.
[[nodiscard]] inline inference::SamplingConfig sampling(const RunConfig& c, std::vector<data::TokenId> stop_ids) {
  const TrlConfig& t = c.trl;
  if (t.ignore_eos) stop_ids.clear();
  for (const data::TokenId id : t.stop_token_ids)
    if (std::find(stop_ids.begin(), stop_ids.end(), id) == stop_ids.end()) stop_ids.push_back(id);
  return {
      .temperature = t.temperature,
      .top_p = t.top_p,
      .top_k = t.top_k,
      .min_p = t.min_p,
      .repetition_penalty = t.repetition_penalty,
      .max_new_tokens = t.has_turns() ? t.max_completion_length : t.max_new_tokens.value_or(t.max_completion_length),
      .stop_ids = std::move(stop_ids),
      .stop_strings = t.stop_strings,
      .min_new_tokens = t.min_new_tokens};
}

// Everything of trainer::BasicOnlineConfig that the configuration decides. `rows`: training prompts.
[[nodiscard]] inline trainer::BasicOnlineConfig<optim::AnyOptimizer> online_config(const RunConfig& c,
                                                                                   const LanguageModel& model,
                                                                                   std::int64_t rows, bool evaluates) {
  trainer::BasicOnlineConfig<optim::AnyOptimizer> out;
  out.rollouts = {.geometry = geometry_of(c),
                  .seed = c.seed,
                  .shuffle = c.trl.shuffle_dataset,
                  .sampling = sampling(c, model.stop_ids),
                  .mask_truncated_completions = c.trl.mask_truncated_completions};
  out.evaluation_generations = c.trl.num_generations_eval.value_or(0);
  out.evaluation_batch_size = c.eval_batch_size.value_or(0);

  const Plan plan = make_plan(c, out.rollouts.geometry, rows, evaluates);
  out.trainer = trainer_settings(c, plan, rows, c.rl + (c.trl.loss_type == c.rl ? "" : " (" + c.trl.loss_type + ")"));
  out.trainer.skip_zero_advantages = c.trl.skip_zero_advantage_batches && idle_rows_are_free(c);
  return out;
}

// How far generation by `source` runs ahead of training; depth 0 where they take turns. `tell` hears of failures.
[[nodiscard]] inline sampler::PrefetchConfig prefetch_config(const RunConfig& c, const CompletionSource& source,
                                                             std::function<void(const std::string&)> tell) {
  const TrlConfig& t = c.trl;
  if (!t.generates_beside()) return {.depth = 0};
  double deadlines = t.reward_timeout * static_cast<double>(t.reward_max_retries + 1);
  if (t.generates_elsewhere()) deadlines += t.request_timeout + t.vllm_server_timeout;
  if (c.nemo_gym.multi_turn) deadlines += c.nemo_gym.run_timeout;
  if (c.nemo_gym.enabled) deadlines += c.nemo_gym.server_timeout + c.nemo_gym.verify_timeout;
  if (t.has_turns() || t.rollout_func) deadlines += t.turn_timeout();
  return {.depth = t.prefetch_depth,
          .sync_interval = t.vllm_sync_interval,
          .max_staleness = t.max_staleness.value_or(-1),
          .stream_groups = t.groups_in_a_piece(),
          .stall_seconds = static_cast<double>(t.heartbeat_stale_after_s) + deadlines,
          .stop = source.stop(),
          .tell = std::move(tell),
          .progress = source.progress(),
          .meanwhile = source.meanwhile()};
}

// Where the weights of the calls beside training are recorded, or taken from; null: neither. Of several ranks it is rank 0's.
[[nodiscard]] inline std::shared_ptr<sync::CallSchedule> call_schedule(const RunConfig& c) {
  const TrlConfig& t = c.trl;
  if (t.async_schedule == "live" || !t.generates_beside() || (c.world != nullptr && c.world->rank() > 0))
    return nullptr;
  if (t.async_schedule == "record") return std::make_shared<sync::CallSchedule>(c.schedule_file());
  return std::make_shared<sync::CallSchedule>(
      sync::CallSchedule::repeated(c.schedule_file(), static_cast<double>(t.heartbeat_stale_after_s)));
}

// What stands between generation and training, in a run of `steps` optimizer steps.
[[nodiscard]] inline trainer::AsynchronousConfig asynchronous_config(const RunConfig& c,
                                                                     sampler::PrefetchConfig prefetch,
                                                                     std::int64_t steps) {
  const TrlConfig& t = c.trl;
  const auto first = static_cast<std::int64_t>(static_cast<double>(steps) * t.reroll_start_fraction);
  return {.prefetch = std::move(prefetch),
          .replay = {.capacity = static_cast<std::size_t>(t.replay_buffer_size),
                     .max_age = t.replay_max_age.value_or(-1),
                     .recompute_log_probs = t.replay_recompute_logps.value_or(corrects_sampling(c))},
          .reroll = {.on = t.reroll_start_fraction < 1.0,
                     .first_step = std::max<std::int64_t>(1, first),
                     .max_groups = t.reroll_max_groups}};
}

// What accompanies the run: the steering of an entropy bonus, a reference that follows the policy.
[[nodiscard]] inline std::vector<std::shared_ptr<trainer::Companion>> companions(
    const RunConfig& c, const EntropyCoefficient& coefficient, const LanguageModel& model,
    const std::shared_ptr<model::Decoder>& reference, const Sharding* sharding) {
  std::vector<std::shared_ptr<trainer::Companion>> out;
  if (coefficient) out.push_back(std::make_shared<trainer::EntropyControl>(coefficient));
  if (c.trl.sync_ref_model)
    out.push_back(reference_sync({.every = c.trl.ref_model_sync_steps, .mixup = c.trl.ref_model_mixup_alpha},
                                 *model.decoder, *reference, sharding));
  return out;
}

[[nodiscard]] inline std::shared_ptr<reward::RewardFunction> guarded(std::shared_ptr<reward::RewardFunction> function,
                                                                     reward::OnFailure on_failure) {
  if (on_failure == reward::OnFailure::error) return function;
  return std::make_shared<reward::Guarded>(std::move(function), on_failure);
}

[[nodiscard]] inline std::shared_ptr<reward::RewardFunction> reward_model(const RunConfig& c, const std::string& name,
                                                                          reward::OnFailure on_failure) {
  const std::filesystem::path directory = resolve_model(name, c.place("trl.reward_funcs"));
  std::string last = std::filesystem::path(name).lexically_normal().string();
  while (last.ends_with('/')) last.pop_back();
  return guarded(std::make_shared<feature::RewardModel>(directory, last.substr(last.rfind('/') + 1),
                                                        c.trl.chat_template_kwargs, device_of(c)),
                 on_failure);
}

// The reward functions with their weights, and last what the environments give (null: there are none), with weight 1.
[[nodiscard]] inline std::vector<sampler::WeightedReward> weighted_rewards(
    const RunConfig& c, const std::filesystem::path& config_file,
    const environment::Environments* environments = nullptr, const std::shared_ptr<remote::GymVerifier>& gym = nullptr,
    const std::function<void(const std::string&)>& note = {}) {
  remote::RewardSettings settings;
  remote::PythonConfig& python = settings.pool.python;
  python.search_paths = python_search_paths(config_file);
  settings.note = note;
  python.call_seconds = c.trl.reward_timeout;
  settings.pool.workers = static_cast<std::size_t>(c.trl.reward_num_workers);
  settings.pool.max_retries = static_cast<int>(c.trl.reward_max_retries);
  settings.max_completion_length = c.trl.max_completion_length;
  if (c.trl.reward_kwargs.is_object()) settings.kwargs = c.trl.reward_kwargs;
  settings.on_failure = c.trl.reward_on_failure == "nan"    ? reward::OnFailure::nan
                        : c.trl.reward_on_failure == "zero" ? reward::OnFailure::zero
                                                            : reward::OnFailure::error;
  const auto of_gym = [&](const std::string& name) {
    return c.nemo_gym.enabled && names_gym_reward(name) && !remote::user_has(name, python.search_paths);
  };
  std::vector<std::string> names;
  for (const std::string& name : c.trl.reward_funcs)
    if (!names_reward_model(name) && !of_gym(name)) names.push_back(name);
  auto functions = remote::make_reward_functions(names, settings);
  std::vector<sampler::WeightedReward> out;
  for (std::size_t k = 0, next = 0; k < c.trl.reward_funcs.size(); ++k) {
    const std::string& name = c.trl.reward_funcs[k];
    std::shared_ptr<reward::RewardFunction> function;
    if (of_gym(name) && gym == nullptr)
      function = reward::column(name, name == "nemo_gym" ? "environment_reward" : name);
    else if (of_gym(name))
      function = std::make_shared<remote::GymReward>(gym, name == "nemo_gym" ? "" : name.substr(9));
    else
      function = names_reward_model(name) ? reward_model(c, name, settings.on_failure) : functions[next++];
    out.push_back({std::move(function), c.trl.reward_weights.empty() ? 1.0 : c.trl.reward_weights[k]});
  }
  if (environments != nullptr)
    for (const environment::RewardName& given : environments->rewards())
      out.push_back({guarded(
          reward::column(given.name, "environment_reward",
                         given.environments.empty() ? reward::RowsOf()
                                                    : reward::RowsOf{environment::Several::column, given.environments}),
          settings.on_failure)});
  return out;
}

}  // namespace rlalgo::config
