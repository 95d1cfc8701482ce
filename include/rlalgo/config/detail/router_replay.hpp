// Whether the experts that generation chose are passed again in training (model/router_replay.hpp): trl.router_replay.
//
// Errors: [rlalgo.config.59] (usage) the key asks for it, and the model has no experts, or completions come from where experts are not noted.
#pragma once

#include <string>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder.hpp>

namespace rlalgo::config::detail {

[[noreturn]] inline void refuse_router_replay(const RunConfig& c, const std::string& why) {
  core::raise_usage("config", 59,
                    {.what = "experts cannot be replayed: " + why,
                     .found = "trl.router_replay: " + c.trl.router_replay,
                     .where = c.base_model,
                     .remedy = "set trl.router_replay: disabled"});
}

[[nodiscard]] inline bool replays_experts(const RunConfig& c, const model::Decoder& decoder) {
  if (c.trl.router_replay == "disabled") return false;
  bool experts = false;
  for (const model::LayerSpec& spec : decoder.config().specs) {
    experts = experts || spec.experts.count > 0;
    if (spec.experts.count >= model::chosen_by_router) refuse_router_replay(c, "the model has too many of them");
  }
  if (!experts) refuse_router_replay(c, "the model has none");
  if (c.trl.generates_elsewhere() || c.trl.serves()) refuse_router_replay(c, "a server draws the completions");
  if (c.trl.has_turns() || c.trl.rollout_func)
    refuse_router_replay(c, "completions have several turns, or a function of yours makes them");
  if (!decoder.device().is_cpu()) refuse_router_replay(c, "the engine of this device does not note them");
  if (c.context_parallel_size > 1) refuse_router_replay(c, "ranks share the tokens of a row (context_parallel_size)");
  return true;
}

}  // namespace rlalgo::config::detail
