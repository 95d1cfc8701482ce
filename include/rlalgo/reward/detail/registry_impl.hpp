// Definitions of registry.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/reward/accuracy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/reward/gsm8k.hpp>
#include <rlalgo/reward/registry.hpp>
#include <rlalgo/reward/shape.hpp>

namespace rlalgo::reward {

RLALGO_INLINE Arguments::Arguments(const Json& arguments, std::string reward)
    : arguments_(arguments), reward_(std::move(reward)) {
  if (!arguments.is_null() && !arguments.is_object()) refuse("", arguments, "parameter: value lines");
}

RLALGO_INLINE void Arguments::finish() const {
  if (!arguments_.is_object()) return;
  for (const auto& [name, value] : arguments_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string nearest = core::nearest_name(name, known_);
    std::string all;
    for (const std::string& k : known_) all += (all.empty() ? "" : ", ") + k;
    core::raise_usage("reward", 6,
                      {.what = "the reward '" + reward_ + "' has no such parameter",
                       .found = name,
                       .expected = all.empty() ? "none: it has no parameters" : all,
                       .where = "trl.reward_kwargs",
                       .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
  }
}

RLALGO_INLINE void Arguments::refuse(const std::string& name, const Json& value, const std::string& expected) const {
  core::raise_usage("reward", 7,
                    {.what = "a parameter of the reward '" + reward_ + "' has no possible value",
                     .found = (name.empty() ? "" : name + ": ") + value.dump(),
                     .expected = expected,
                     .where = "trl.reward_kwargs"});
}

namespace detail {

RLALGO_INLINE Builtin without_parameters(const std::string& name, bool of_trl, auto functor) {
  return {name, "", of_trl, [name, functor](const BuiltinOptions& options) {
            Arguments(options.arguments, name).finish();
            return from(name, functor);
          }};
}

RLALGO_INLINE std::shared_ptr<RewardFunction> make_reasoning_accuracy(const BuiltinOptions& options) {
  ReasoningAccuracy functor;
  Arguments(options.arguments, "reasoning_accuracy_reward")
      .read("reasoning_delimiters", functor.reasoning_delimiters, "a list of texts",
            [](const auto& list) { return !list.empty() && std::find(list.begin(), list.end(), "") == list.end(); })
      .finish();
  return from("reasoning_accuracy_reward", functor);
}

RLALGO_INLINE std::shared_ptr<RewardFunction> make_cosine_scaled(const BuiltinOptions& options) {
  CosineScaled functor{.max_len = options.max_completion_length};
  const auto finite = [](double value) { return std::isfinite(value); };
  Arguments(options.arguments, "cosine_scaled_reward")
      .read("max_len", functor.max_len, "tokens, at least 1", [](std::int64_t n) { return n > 0; })
      .read("min_value_wrong", functor.min_value_wrong, "a number", finite)
      .read("max_value_wrong", functor.max_value_wrong, "a number", finite)
      .read("min_value_correct", functor.min_value_correct, "a number", finite)
      .read("max_value_correct", functor.max_value_correct, "a number", finite)
      .finish();
  return from("cosine_scaled_reward", functor);
}

RLALGO_INLINE std::shared_ptr<RewardFunction> make_repetition_penalty(const BuiltinOptions& options) {
  std::int64_t ngram_size = 3;
  Repetition penalty;
  Arguments(options.arguments, "repetition_penalty_reward")
      .read("ngram_size", ngram_size, "tokens, at least 1", [](std::int64_t n) { return n > 0; })
      .read("max_penalty", penalty.max_penalty, "a number that is not positive",
            [](double p) { return std::isfinite(p) && p <= 0; })
      .finish();
  penalty.ngram = static_cast<std::size_t>(ngram_size);
  return from("repetition_penalty_reward", [penalty](const Sample& sample) { return penalty(sample.ids); });
}

RLALGO_INLINE std::shared_ptr<RewardFunction> make_soft_overlong(const BuiltinOptions& options) {
  SoftOverlong penalty{options.max_completion_length, -1};
  Arguments(options.arguments, "soft_overlong_punishment_reward")
      .read("max_completion_len", penalty.max_completion_length, "tokens, at least 1",
            [](std::int64_t n) { return n > 0; })
      .read("soft_punish_cache", penalty.cache, "tokens, at least 0", [](std::int64_t n) { return n >= 0; })
      .finish();
  if (penalty.cache < 0) penalty.cache = penalty.max_completion_length / 5;
  return from("soft_overlong_punishment_reward",
              [penalty](const Sample& sample) { return penalty(static_cast<std::int64_t>(sample.ids.size())); });
}

}  // namespace detail

RLALGO_INLINE const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> list = {
      detail::without_parameters("accuracy_reward", true, Accuracy{}),
      {"reasoning_accuracy_reward", "", true, detail::make_reasoning_accuracy},
      {"cosine_scaled_reward", "get_cosine_scaled_reward", true, detail::make_cosine_scaled},
      detail::without_parameters("think_format_reward", true, think_format),
      {"soft_overlong_punishment_reward", "get_soft_overlong_punishment", true, detail::make_soft_overlong},
      {"repetition_penalty_reward", "get_repetition_penalty_reward", true, detail::make_repetition_penalty},
      detail::without_parameters("length_reward", false, RelativeLength{}),
      detail::without_parameters("correctness_reward_func", false, correctness),
      detail::without_parameters("int_reward_func", false, integer_answer),
      detail::without_parameters("strict_format_reward_func", false, strict_format),
      detail::without_parameters("soft_format_reward_func", false, soft_format),
      detail::without_parameters("xmlcount_reward_func", false, xml_count),
      detail::without_parameters("format_reward", false, answer_block),
      detail::without_parameters("gsm8k_accuracy", false, hash_accuracy),
      detail::without_parameters("gsm8k_format", false, hash_format),
  };
  return list;
}

RLALGO_INLINE const Builtin* find_builtin(std::string_view path) {
  const bool bare = path.find('.') == std::string_view::npos;
  for (const Builtin& b : builtins()) {
    const auto named = [&](std::string_view name) {
      return name == b.name || (!b.factory.empty() && name == b.factory);
    };
    if (b.of_trl && named(bare ? path : path.starts_with("trl.rewards.") ? path.substr(12) : std::string_view()))
      return &b;
    for (const std::string_view module : {"builtin.", "rewards.", "gsm8k_grpo."})
      if (path.starts_with(module) && named(path.substr(module.size()))) return &b;
  }
  return nullptr;
}

RLALGO_INLINE std::string builtin_names() {
  std::string all;
  for (const Builtin& b : builtins()) all += (all.empty() ? "" : ", ") + (b.of_trl ? b.name : "builtin." + b.name);
  return all;
}

RLALGO_INLINE std::shared_ptr<RewardFunction> make_builtin(const std::string& path, const BuiltinOptions& options) {
  if (const Builtin* found = find_builtin(path)) return found->make(options);
  core::raise_usage("reward", 3,
                    {.what = "there is no built-in reward of that name", .found = path, .expected = builtin_names()});
}

}  // namespace rlalgo::reward
