// The `trl:` section: what makes completions, what rewards them, and what is learned from them.
#pragma once

#include <rlalgo/config/asynchronous_keys.hpp>
#include <rlalgo/config/completion_keys.hpp>
#include <rlalgo/config/loss_keys.hpp>
#include <rlalgo/config/reward_keys.hpp>
#include <rlalgo/config/server_keys.hpp>

namespace rlalgo::config {

// A field has the name of its key.
struct TrlConfig : RewardConfig, CompletionConfig, AsynchronousConfig, ServerConfig, LossConfig {
  // Whether the ratio of a row may have to be corrected for the generator that drew it.
  [[nodiscard]] bool may_correct() const {
    return generates_elsewhere() || serves() || is_asynchronous() || quantizes() ||
           (replay_buffer_size > 0 && replay_recompute_logps.value_or(false));
  }
};

// The rows of online methods. `greedy`: completions need no temperature; `alone`: they are not compared.
[[nodiscard]] inline Keys trl_keys(TrlConfig& t, bool greedy = false, bool alone = false) {
  Keys out = reward_keys(t);
  for (Keys rows :
       {geometry_keys(t, alone), asynchronous_keys(t), generator_keys(t), server_keys(t, t.may_correct()),
        sampling_keys(t, greedy), Keys{generation_kwargs_key(t), template_key(t)}, turn_keys(t), loss_keys(t)})
    for (Key& row : rows) out.push_back(std::move(row));
  return out;
}

}  // namespace rlalgo::config
