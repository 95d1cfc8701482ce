// Which metrics a run has itself: what a user's function logs by such a name must not be averaged into them.
//
// Names are those of metrics.jsonl (docs/reference of the algorithms); a name that ends with "/" or "_" stands for all
// that begin so.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace rlalgo::core {

[[nodiscard]] inline bool is_run_metric(std::string_view name) {
  constexpr std::array names = {"",
                                "step",
                                "epoch",
                                "loss",
                                "grad_norm",
                                "learning_rate",
                                "reward",
                                "reward_std",
                                "frac_reward_zero_std",
                                "kl",
                                "entropy",
                                "entropy_coef",
                                "policy_loss",
                                "nll_loss",
                                "log_odds_ratio",
                                "log_odds_chosen",
                                "cispo_clip_ratio",
                                "mean_token_accuracy",
                                "num_tokens",
                                "skipped_zero_adv_rows",
                                "train/mfu",
                                "skipped_zero_adv_batches"};
  constexpr std::array families = {"async/",         "clip_ratio/", "completions/", "ebft/",    "entropy_bonus/",
                                   "environment/",   "eval_",       "logits/",      "logps/",   "memory/",
                                   "replay_buffer_", "reroll_",     "rewards/",     "rollout/", "sampling/",
                                   "sync/",          "time/",       "tools/",       "vespo/"};
  return std::any_of(names.begin(), names.end(), [&](std::string_view one) { return name == one; }) ||
         std::any_of(families.begin(), families.end(), [&](std::string_view one) { return name.starts_with(one); });
}

// The name under which a function's metric of such a name stands.
[[nodiscard]] inline std::string logged_name(std::string_view name) { return "logged/" + std::string(name); }

}  // namespace rlalgo::core
