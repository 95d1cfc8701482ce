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

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/rewards.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/detail/read_nemo_gym.hpp>
#include <rlalgo/config/detail/validate_asynchronous.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/entropy.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/plan.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/remote/gym_rewards.hpp>
#include <rlalgo/sampler/prefetch_config.hpp>
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
                                                                                   const assembly::LanguageModel& model,
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

// How far generation runs ahead of training; `tell` hears of failures. Completions::ahead() adds what they know.
[[nodiscard]] inline sampler::PrefetchConfig prefetch_config(const RunConfig& c,
                                                             std::function<void(const std::string&)> tell) {
  const TrlConfig& t = c.trl;
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
          .tell = std::move(tell)};
}

// What stands between generation and training, in a run of `steps` optimizer steps. `prefetch`: with what completions know
// of it.
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
    const RunConfig& c, const EntropyCoefficient& coefficient, const assembly::LanguageModel& model,
    const std::shared_ptr<model::Decoder>& reference, const assembly::Sharding* sharding) {
  std::vector<std::shared_ptr<trainer::Companion>> out;
  if (coefficient) out.push_back(std::make_shared<trainer::EntropyControl>(coefficient));
  if (c.trl.sync_ref_model)
    out.push_back(assembly::reference_sync({.every = c.trl.ref_model_sync_steps, .mixup = c.trl.ref_model_mixup_alpha},
                                           *model.decoder, *reference, sharding));
  return out;
}

// The reward functions with their weights, and last what the environments give (null: there are none).
[[nodiscard]] inline std::vector<sampler::WeightedReward> weighted_rewards(
    const RunConfig& c, const environment::Environments* environments = nullptr,
    const std::shared_ptr<remote::GymVerifier>& gym = nullptr,
    const std::function<void(const std::string&)>& note = {}) {
  assembly::RewardsConfig out{.names = c.trl.reward_funcs,
                              .weights = c.trl.reward_weights,
                              .template_kwargs = c.trl.chat_template_kwargs,
                              .device = device_of(c),
                              .where = c.place("trl.reward_funcs")};
  remote::RewardSettings& settings = out.functions;
  remote::PythonConfig& python = settings.pool.python;
  python.search_paths = python_search_paths(c);
  settings.note = note;
  python.call_seconds = c.trl.reward_timeout;
  settings.pool.workers = static_cast<std::size_t>(c.trl.reward_num_workers);
  settings.pool.max_retries = static_cast<int>(c.trl.reward_max_retries);
  settings.max_completion_length = c.trl.max_completion_length;
  if (c.trl.reward_kwargs.is_object()) settings.kwargs = c.trl.reward_kwargs;
  settings.on_failure = c.trl.reward_on_failure == "nan"    ? reward::OnFailure::nan
                        : c.trl.reward_on_failure == "zero" ? reward::OnFailure::zero
                                                            : reward::OnFailure::error;
  if (c.nemo_gym.enabled)
    for (const std::string& name : c.trl.reward_funcs)
      if (names_gym_reward(name) && !remote::user_has(name, python.search_paths)) out.of_gym.push_back(name);
  return assembly::weighted_rewards(out, environments, gym);
}

}  // namespace rlalgo::config
