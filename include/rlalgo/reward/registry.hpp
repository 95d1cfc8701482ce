// The reward functions that can be named in a config, in one explicit list, and their parameters.
//
// TRL's rewards answer to their names in TRL: think_format_reward, trl.rewards.think_format_reward, and the factory's
// name where TRL has one (get_cosine_scaled_reward). `builtin.<name>` always means one of this list; `rewards.<name>`
// and `gsm8k_grpo.<name>` (the module names of axolotl's examples) mean them where no Python module of that name is
// found. Errors (usage): [rlalgo.reward.3] no built-in of that name; the message lists all; [rlalgo.reward.6] a
// parameter that the reward does not have; [rlalgo.reward.7] a value of a parameter that is not possible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rlalgo/core/nearest.hpp>
#include <rlalgo/reward/accuracy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/reward/gsm8k.hpp>
#include <rlalgo/reward/shape.hpp>

namespace rlalgo::reward {

// What built-ins need to know of the run, and what the user sets.
struct BuiltinOptions {
  std::int64_t max_completion_length = 512;  // the default of max_len and max_completion_len
  Json arguments = Json::object();           // parameter → value
};

// Reads the parameters of one reward; what nobody asked for is an error.
class Arguments {
 public:
  Arguments(const Json& arguments, std::string reward);

  // `expected` describes what `acceptable` asks for.
  template <class T, class Acceptable>
  Arguments& read(const std::string& name, T& out, const std::string& expected, Acceptable acceptable) {
    known_.push_back(name);
    const auto found = arguments_.is_object() ? arguments_.find(name) : arguments_.end();
    if (!arguments_.is_object() || found == arguments_.end() || found->is_null()) return *this;
    bool fits = false;
    if constexpr (std::is_same_v<T, std::int64_t>) fits = found->is_number_integer();
    if constexpr (std::is_same_v<T, double>) fits = found->is_number();
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      fits = found->is_array();
      for (const Json& item : *found) fits = fits && item.is_string();
    }
    if (fits) out = found->template get<T>();
    if (!fits || !acceptable(out)) refuse(name, *found, expected);
    return *this;
  }

  void finish() const;

 private:
  [[noreturn]] void refuse(const std::string& name, const Json& value, const std::string& expected) const;
  const Json& arguments_;
  std::string reward_;
  std::vector<std::string> known_;
};

struct Builtin {
  std::string name;
  std::string factory;  // TRL's name of what makes it, if it has one
  bool of_trl = false;  // found under its bare name and under trl.rewards.
  std::function<std::shared_ptr<RewardFunction>(const BuiltinOptions&)> make;
};

namespace detail {

inline constexpr auto anything = [](const auto&) { return true; };

Builtin without_parameters(const std::string& name, bool of_trl, auto functor);

std::shared_ptr<RewardFunction> make_reasoning_accuracy(const BuiltinOptions& options);

std::shared_ptr<RewardFunction> make_cosine_scaled(const BuiltinOptions& options);

std::shared_ptr<RewardFunction> make_repetition_penalty(const BuiltinOptions& options);

std::shared_ptr<RewardFunction> make_soft_overlong(const BuiltinOptions& options);

}  // namespace detail

[[nodiscard]] const std::vector<Builtin>& builtins();

// The built-in that `path` names; null: none.
[[nodiscard]] const Builtin* find_builtin(std::string_view path);

[[nodiscard]] inline bool is_builtin(std::string_view path) { return find_builtin(path) != nullptr; }

[[nodiscard]] std::string builtin_names();

[[nodiscard]] std::shared_ptr<RewardFunction> make_builtin(const std::string& path, const BuiltinOptions& options);

}  // namespace rlalgo::reward

#ifndef RLALGO_COMPILED
#include <rlalgo/reward/detail/registry_impl.hpp>
#endif
