// How completions are drawn, one turn or several: geometry, sampling, tools and environments. Unset numbers have TRL's defaults.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>

namespace rlalgo::config {

struct CompletionConfig {
  // Geometry
  std::int64_t num_generations = 8;  // G
  std::optional<std::int64_t> num_generations_eval;
  std::optional<std::int64_t> generation_batch_size;
  std::optional<std::int64_t> steps_per_generation;
  std::int64_t num_iterations = 1;  // μ
  bool shuffle_dataset = true;

  // Sampling; trl.generation_kwargs overrides the five after the first, and is applied here
  std::int64_t max_completion_length = 512;  // (≠ axolotl passes null on)
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;  // 0 = off
  double min_p = 0.0;      // 0 = off
  double repetition_penalty = 1.0;
  data::Json chat_template_kwargs = nullptr;

  // Several turns
  std::optional<std::string> environment_factory;
  data::Json environment_factories = nullptr;  // several: name in the column `environment` → one of these
  std::vector<std::string> tools;
  std::optional<std::int64_t> max_tool_calling_iterations;
  std::int64_t max_turns = 0;  // 0 = no limit
  double environment_timeout = 60.0;
  std::optional<std::string> rollout_func;
  [[nodiscard]] bool has_environment() const { return environment_factory || environment_factories.is_object(); }
  // Whether the environment may say what there is to do, without rows: of several, rows choose.
  [[nodiscard]] bool prompts_itself() const { return environment_factory.has_value(); }
  [[nodiscard]] bool has_turns() const { return has_environment() || !tools.empty(); }
  // Whose turns follow each other: each environment is asked with a deadline of its own.
  [[nodiscard]] double turn_timeout() const {
    return environment_timeout * static_cast<double>(std::max<std::size_t>(1, environment_factories.size()));
  }

  bool log_completions = false;
};

namespace detail {

// One environment, or one for each name in the data's column `environment`.
inline void read_environments(const Node& node, CompletionConfig& t) {
  static constexpr const char* form =
      "module.Class, or a line name: module.Class for each name in the column environment";
  if (node.scalar()) return convert(node, "trl.environment_factory", t.environment_factory);
  if (node.kind != Kind::mapping || node.members.empty()) raise_type("trl.environment_factory", node, form);
  data::Json factories = data::Json::object();
  for (const Member& member : node.members) {
    std::string factory;
    convert(member.value, "trl.environment_factory." + member.key, factory);
    factories[member.key] = factory;
  }
  t.environment_factories = std::move(factories);
}

}  // namespace detail

// clang-format off
// `alone`: a completion is compared with no other one of its prompt.
[[nodiscard]] inline Keys geometry_keys(CompletionConfig& t, bool alone = false) {
  return {
    key("trl.num_generations", t.num_generations, "completions per prompt; must divide `micro_batch_size` × `gradient_accumulation_steps`")
        .within(alone ? count(1) : count(2).meaning("they are compared with each other")),
    key("trl.num_generations_eval", t.num_generations_eval, "the same when the model is evaluated").within(count(1)).shows(
        "`num_generations`").free(resume::evaluation),
    key("trl.generation_batch_size", t.generation_batch_size, "completions that are generated at once, where they are not those of one "
        "optimizer step").within(count(1)),
    key("trl.steps_per_generation", t.steps_per_generation, "the same in passes of `micro_batch_size`").within(count(1)),
    key("trl.num_iterations", t.num_iterations, "passes over one generation batch").within(count(1)),
    key("trl.shuffle_dataset", t.shuffle_dataset, "a new order every epoch"),
  };
}

// `greedy`: what is learned does not hang on log-probs at a temperature.
[[nodiscard]] inline Keys sampling_keys(CompletionConfig& t, bool greedy = false) {
  const Range heat = greedy ? at_least(0) : above(0).meaning("log-probs are divided by it");
  return {
    key("trl.max_completion_length", t.max_completion_length, "tokens").within(count(1)),
    key("trl.temperature", t.temperature, "what logits are divided by; these five are overridden by `generation_kwargs`").within(heat),
    key("trl.top_p", t.top_p, "share of the probability that tokens are drawn from").within(above(0).to(1).meaning("1 = off")),
    key("trl.top_k", t.top_k, "how many of the most likely tokens").within(count(0).meaning("0 = off")),
    key("trl.min_p", t.min_p, "the least probability, as a share of the largest").within(fraction.meaning("0 = off")),
    key("trl.repetition_penalty", t.repetition_penalty, "of tokens that stand in the text already").within(above(0).meaning("1 = off")),
  };
}

// Variables of the chat template; also where nothing is generated.
[[nodiscard]] inline Key template_key(CompletionConfig& t) {
  return key("trl.chat_template_kwargs", t.chat_template_kwargs, "variables of the chat template").as_section("a section of name: value "
      "lines");
}

[[nodiscard]] inline Keys turn_keys(CompletionConfig& t) {
  constexpr std::string_view single =
      "completions are single turns: there is no trl.environment_factory and no trl.tools";
  const Gate turns = where([&t] { return t.has_turns(); }, single);
  const Gate played = where([&t] { return t.has_turns() || t.rollout_func; }, single);
  return {
    key("trl.environment_factory", t.environment_factory, "`module.Class`, or the address of an OpenEnv server: an environment that answers "
        "the model ([environments.md](environments.md)); its reward is added with weight 1, `reward_funcs` may then be missing. Or "
        "`{name: one of these, …}`: the data's column `environment` chooses ([several](environments.md#several-environments))")
        .by("text, section", [&t](const Node& node) { detail::read_environments(node, t); }),
    key("trl.tools", t.tools, "`calculator`, `module.function`: what the model may call"),
    key("trl.rollout_func", t.rollout_func, "`module.function` that makes the completions itself, in axolotl's form or TRL's "
        "([environments.md](environments.md#rollout-functions))"),
    key("trl.max_tool_calling_iterations", t.max_tool_calling_iterations, "rounds of tool calls in one completion; unset = no limit, 0 = "
        "none is run").within(count(0)).when(turns),
    key("trl.max_turns", t.max_turns, "messages of the model in one completion; 0 = no limit (ours)").within(count(0)).when(turns),
    key("trl.environment_timeout", t.environment_timeout, "that one turn of all episodes, or one step of a rollout function, may take "
        "(ours)").within(seconds).when(played).free(resume::wait),
    key("trl.log_completions", t.log_completions, "accepted; completions always go to `samples.jsonl` and `report.html`, with the columns "
        "that reward functions log (`log_extra`)").free(resume::when),
  };
}
// clang-format on

}  // namespace rlalgo::config
