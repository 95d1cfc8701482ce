// The reward functions that can be named in a config, in one explicit list.
//
// `builtin.<name>` always means one of these; `rewards.<name>` and `gsm8k_grpo.<name>` (the module names of axolotl's
// examples) mean them where no Python module of that name is found.
// Errors (usage): [rlalgo.reward.3] no built-in of that name; the message lists all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/reward/gsm8k.hpp>
#include <rlalgo/reward/shape.hpp>

namespace rlalgo::reward {

// What built-ins need to know of the run.
struct BuiltinOptions {
  std::int64_t max_completion_length = 512;  // soft_overlong_punishment_reward: L, with C = L/5
};

struct Builtin {
  std::string name;
  std::function<std::shared_ptr<RewardFunction>(const BuiltinOptions&)> make;
};

[[nodiscard]] inline const std::vector<Builtin>& builtins() {
  const auto plain = [](std::string name, auto functor) {
    return Builtin{name, [name, functor](const BuiltinOptions&) { return from(name, functor); }};
  };
  static const std::vector<Builtin> list = {
      plain("correctness_reward_func", correctness),
      plain("int_reward_func", integer_answer),
      plain("strict_format_reward_func", strict_format),
      plain("soft_format_reward_func", soft_format),
      plain("xmlcount_reward_func", xml_count),
      plain("format_reward", answer_block),
      plain("gsm8k_accuracy", hash_accuracy),
      plain("gsm8k_format", hash_format),
      plain("think_format_reward", think_format),
      plain("repetition_penalty_reward", [](const Sample& sample) { return Repetition{}(sample.ids); }),
      {"soft_overlong_punishment_reward",
       [](const BuiltinOptions& options) {
         const SoftOverlong penalty{options.max_completion_length, options.max_completion_length / 5};
         return from("soft_overlong_punishment_reward",
                     [penalty](const Sample& sample) { return penalty(static_cast<std::int64_t>(sample.ids.size())); });
       }},
  };
  return list;
}

// "builtin.x", "rewards.x", "gsm8k_grpo.x" → "x"; anything else → "".
[[nodiscard]] inline std::string builtin_name(std::string_view path) {
  for (const std::string_view module : {"builtin.", "rewards.", "gsm8k_grpo."})
    if (path.starts_with(module)) return std::string(path.substr(module.size()));
  return {};
}

[[nodiscard]] inline bool is_builtin(std::string_view path) {
  const std::string name = builtin_name(path);
  for (const Builtin& b : builtins())
    if (b.name == name) return true;
  return false;
}

[[nodiscard]] inline std::string builtin_names() {
  std::string all;
  for (const Builtin& b : builtins()) all += (all.empty() ? "builtin." : ", builtin.") + b.name;
  return all;
}

[[nodiscard]] inline std::shared_ptr<RewardFunction> make_builtin(const std::string& path,
                                                                  const BuiltinOptions& options) {
  const std::string name = builtin_name(path);
  for (const Builtin& b : builtins())
    if (b.name == name) return b.make(options);
  core::raise_usage("reward", 3,
                    {.what = "there is no built-in reward of that name", .found = path, .expected = builtin_names()});
}

}  // namespace rlalgo::reward
