// From a configuration to how its completions are made (assembly/completions.hpp).
//
//   trl.use_vllm: true, vllm_mode: server         Server
//   nemo_gym_multi_turn without a server          ColocatedServer, on vllm_server_host and _port, or on a port that is free
//   any other                                     Engine
//   trl.environment_factory, trl.tools            Turns      trl.rollout_func        RolledOut
//   nemo_gym_multi_turn                           Agents     trl.async_prefetch      Asynchronous
//   rl: ebft                                      MatchedCompletions
//
// Errors: those of assembly/environments.hpp and detail/router_replay.hpp; [rlalgo.http.4] an address that cannot be one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/environments.hpp>
#include <rlalgo/assembly/generation_memory.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/matched_completions.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/detail/router_replay.hpp>
#include <rlalgo/config/feature_matching.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/online.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/inference/cache_element.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/remote/rollout_function.hpp>
#include <rlalgo/sync/call_schedule.hpp>

namespace rlalgo::config {

// The address of the generation server; 0.0.0.0, the default of those servers, is this machine.
[[nodiscard]] inline std::string server_url(const TrlConfig& t) {
  if (t.vllm_server_base_url) return *t.vllm_server_base_url;
  const std::string host = t.vllm_server_host == "0.0.0.0" ? "127.0.0.1" : t.vllm_server_host;
  return "http://" + host + ":" + std::to_string(t.vllm_server_port);
}

// Refuses an address that cannot be one. [rlalgo.http.4]
inline void check_server(const RunConfig& c) {
  if (c.trl.generates_elsewhere()) (void)http::Client({.base_url = server_url(c.trl)});
}

// Null: completions are single turns.
[[nodiscard]] inline std::shared_ptr<environment::Environments> environments(
    const RunConfig& c, const std::function<void(const std::string&)>& tell = {}) {
  const TrlConfig& t = c.trl;
  auto out = assembly::environments({.factory = t.environment_factory,
                                     .factories = t.environment_factories,
                                     .tools = t.tools,
                                     .max_tool_rounds = t.max_tool_calling_iterations,
                                     .seconds = t.environment_timeout,
                                     .failures_end_the_run = t.reward_on_failure == "error",
                                     .search_paths = python_search_paths(c),
                                     .tell = tell,
                                     .factory_where = c.place("trl.environment_factory"),
                                     .tools_where = c.place("trl.tools")});
  if (t.reward_funcs.empty() && !matches_features(c))
    assembly::require_reward(out.get(), c.place("trl.environment_factory"));
  return out;
}

// Null: there is none.
[[nodiscard]] inline std::shared_ptr<remote::RolloutFunction> rollout_function(const RunConfig& c) {
  if (!c.trl.rollout_func) return nullptr;
  return std::make_shared<remote::RolloutFunction>(
      *c.trl.rollout_func,
      remote::PythonConfig{.search_paths = python_search_paths(c), .call_seconds = c.trl.environment_timeout});
}

// Who draws.
[[nodiscard]] inline assembly::AnyDrawer drawer_of(const RunConfig& c, const model::Decoder& decoder,
                                                   const assembly::GenerationMemory& memory = {}) {
  const TrlConfig& t = c.trl;
  const bool replays = detail::replays_experts(c, decoder);  // a server: refused
  const auto quantization = inference::quantization_named(t.generation_quantization, "trl.generation_quantization");
  const auto element = inference::cache_element_named(t.generation_kv_cache_dtype, "trl.generation_kv_cache_dtype");
  if (t.serves())
    return assembly::ColocatedServer{.name = c.nemo_gym.model_name.value_or(""),
                                     .sampling = {.temperature = t.temperature,
                                                  .top_p = t.top_p,
                                                  .min_p = t.min_p,
                                                  .repetition_penalty = t.repetition_penalty,
                                                  .top_k = t.top_k,
                                                  .max_tokens = {}},
                                     .host = t.vllm_server_host,
                                     .port = static_cast<std::uint16_t>(t.vllm_server_port),
                                     .quantization = quantization,
                                     .cache_element = element,
                                     .invariant = t.generation_invariant,
                                     .seed = c.seed,
                                     .cache_bytes = memory.cache_bytes};
  if (!t.generates_elsewhere())
    return assembly::Engine{.quantization = quantization,
                            .cache_element = element,
                            .invariant = t.generation_invariant,
                            .routed_experts = replays,
                            .stop_strings = !t.stop_strings.empty(),
                            .max_slots = memory.max_slots,
                            .cache_bytes = memory.cache_bytes,
                            .merge_adapter = memory.merge_adapter};
  data::Json kwargs = t.generation_kwargs;
  if (t.vllm_structured_outputs_regex) {
    if (!kwargs.is_object()) kwargs = data::Json::object();
    kwargs["structured_outputs"] = {{"regex", *t.vllm_structured_outputs_regex}};
  }
  return assembly::Server{.url = server_url(t),
                          .call_seconds = t.request_timeout,
                          .start_seconds = t.vllm_server_timeout,
                          .generation_kwargs = std::move(kwargs),
                          .loads_adapters = t.vllm_lora_sync,
                          .group_port = static_cast<std::uint16_t>(t.vllm_group_port),
                          .directory = c.output_dir};
}

// Where the weights of asynchronous calls are recorded, or taken from; null: neither. Of several ranks it is rank 0's.
[[nodiscard]] inline std::shared_ptr<sync::CallSchedule> call_schedule(const RunConfig& c) {
  const TrlConfig& t = c.trl;
  if (t.async_schedule == "live" || !t.is_asynchronous() || (c.world != nullptr && c.world->rank() > 0)) return nullptr;
  if (t.async_schedule == "record") return std::make_shared<sync::CallSchedule>(c.schedule_file());
  return std::make_shared<sync::CallSchedule>(
      sync::CallSchedule::repeated(c.schedule_file(), static_cast<double>(t.heartbeat_stale_after_s)));
}

[[nodiscard]] inline assembly::AnyTiming timing_of(const RunConfig& c) {
  if (!c.trl.is_asynchronous()) return assembly::Synchronous{};
  return assembly::Asynchronous{.schedule = call_schedule(c)};
}

// Of completions; unset: the method matches no features. `stop_ids`: the model's own.
[[nodiscard]] inline std::optional<assembly::MatchedConfig> matched_of(const RunConfig& c,
                                                                       const std::vector<data::TokenId>& stop_ids) {
  if (!matches_features(c)) return std::nullopt;
  const EbftConfig& e = c.ebft;
  assembly::MatchedConfig out{.network = feature_network_of(c),
                              .matching = {.pooling = pooling(c),
                                           .matching = matching(c),
                                           .alignment_coef = e.alignment_coef,
                                           .diversity_coef = e.diversity_coef},
                              .kwargs = c.trl.chat_template_kwargs,
                              .columns = columns_of(c),
                              .seed = c.seed,
                              .answers = e.ce_coef > 0,
                              .mask_thoughts = e.mask_thinking_ce};
  // Where environments, agents or a function have made the turns, there are no others.
  if (!c.trl.has_turns() && !c.trl.rollout_func && !c.nemo_gym.multi_turn) out.carries_on = sampling(c, stop_ids);
  if (e.adaptive_max_tokens) out.length_multiplier = e.gt_length_multiplier;
  if (e.save_rollouts) out.record = c.output_dir;
  return out;
}

[[nodiscard]] inline assembly::AnyLayout layout_of(const std::shared_ptr<assembly::Sharding>& sharding) {
  if (sharding == nullptr || !sharding->weights()) return assembly::Whole{};
  return assembly::Sharded{sharding};
}

// What stands between generation and training, in a run of `steps` optimizer steps; `tell` hears of failures.
[[nodiscard]] inline trainer::AsynchronousConfig asynchronous_config(const RunConfig& c,
                                                                     const assembly::Completions& completions,
                                                                     std::int64_t steps,
                                                                     std::function<void(const std::string&)> tell) {
  sampler::PrefetchConfig prefetch{.depth = 0};
  if (c.trl.is_asynchronous()) prefetch = completions.ahead(prefetch_config(c, std::move(tell)));
  return asynchronous_config(c, std::move(prefetch), steps);
}

}  // namespace rlalgo::config
