// What rewards a completion: trl.reward_…, scale_rewards, multi_objective_aggregation. Unset numbers have TRL's defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/methods.hpp>

namespace rlalgo::config {

struct RewardConfig {
  std::vector<std::string> reward_funcs;
  std::vector<double> reward_weights;  // empty = all 1
  std::int64_t reward_num_workers = 1;
  data::Json reward_kwargs = nullptr;
  double reward_timeout = 60.0;
  std::int64_t reward_max_retries = 1;
  std::string reward_on_failure = "error";
  std::string scale_rewards = "group";
  std::string multi_objective_aggregation = "sum_then_normalize";
  std::optional<std::pair<double, double>> reward_clip_range;
};

// clang-format off
[[nodiscard]] inline Keys reward_keys(RewardConfig& r) {
  constexpr Resume sooner{"the same rewards, sooner or later"};
  return {
    key("trl.reward_funcs", r.reward_funcs, "`module.function` (a Python file beside the run), built-in names, or reward models: "
        "[rewards](rewards.md)").a_path(),
    key("trl.reward_weights", r.reward_weights, "one per function").within(any_number).shows("all 1"),
    key("trl.reward_kwargs", r.reward_kwargs, "reward → its parameters; a key of this program, like the next three").as_section(
        "reward: {parameter: value} lines"),
    key("trl.reward_timeout", r.reward_timeout, "that a Python reward may take for one batch").within(seconds).free(resume::wait),
    key("trl.reward_max_retries", r.reward_max_retries, "further attempts after a Python process hung or died").within(at_least(0).to(100))
        .free(sooner),
    key("trl.reward_on_failure", r.reward_on_failure, "what a completion gets whose reward failed").one_of({"error", "nan", "zero"}),
    key("trl.reward_num_workers", r.reward_num_workers, "Python processes that share a batch").within(at_least(1).to(256)).free(sooner),
    key("trl.scale_rewards", r.scale_rewards, "what divides an advantage: `true` is `group`, `false` is `none`").one_of({"group", "batch",
        "none"}).meaning("true", "group").meaning("false", "none").of_recipe("grpo gdpo ebft").of_estimator("group_relative"),
    key("trl.multi_objective_aggregation", r.multi_objective_aggregation, "how several rewards become one advantage; `normalize_then_sum` "
        "is GDPO, and `rl: gdpo` presets it").one_of(names_of(aggregations())).of_recipe("grpo gdpo"),
    key("trl.reward_clip_range", r.reward_clip_range, "bounds of a reward before the penalty is taken off").by("[lowest, highest]",
        [&r](const Node& node) { std::vector<double> range; detail::convert(node, "trl.reward_clip_range",
        range); if (range.size() != 2 || !(range[0] < range[1])) detail::raise_type("trl.reward_clip_range", node, "[lowest, highest]"); r.reward_clip_range = {range[0],
        range[1]}; }).within(any_number).of_recipe("rloo"),
  };
}
// clang-format on

}  // namespace rlalgo::config
