// Completions of several turns, as the configuration asks for them: who answers the model, and how messages become
// tokens.
//
//   trl.environment_factory: module.Class        remote/python_environment.hpp
//   trl.environment_factory: ws://HOST:PORT      remote/open_env.hpp
//   trl.tools: [calculator, module.function]     the built-in tool, Python functions
//   trl.max_tool_calling_iterations              rounds of tool calls; unset = no limit but max_completion_length
//   trl.max_turns                                messages of the model; 0 = no limit
//
// Tokens between two turns: the chat template renders a small conversation with the observation in it, and what stands
// after the end token of the model's turn is taken, so that nothing the model wrote is tokenized again.
//
// Errors (usage): [rlalgo.config.24] neither reward functions nor an environment that rewards; [.25] tools with a
// stepped environment, or with prompts that are not messages; [.26] a chat template that cannot be continued.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/calculator.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/tool_calls.hpp>
#include <rlalgo/environment/tools.hpp>
#include <rlalgo/inference/multi_turn.hpp>
#include <rlalgo/remote/open_env.hpp>
#include <rlalgo/remote/python_environment.hpp>
#include <rlalgo/run/interrupt.hpp>

namespace rlalgo::config {

// Null: completions are single turns. Modules are looked for in `search_paths`.
[[nodiscard]] inline std::shared_ptr<environment::Environments> environments(
    const RunConfig& c, std::vector<std::filesystem::path> search_paths,
    const std::function<void(const std::string&)>& tell = {}) {
  const TrlConfig& t = c.trl;
  std::vector<environment::Tool> built_in;
  std::vector<std::string> python_tools;
  for (const std::string& name : t.tools)
    if (name == "calculator")
      built_in.push_back(environment::calculator());
    else
      python_tools.push_back(name);
  std::shared_ptr<remote::PythonEnvironment> python;
  const bool open_env = t.environment_factory && remote::is_open_env(*t.environment_factory);
  if (open_env && !t.tools.empty())
    core::raise_usage("config", 25,
                      {.what = "trl.tools does not go with an environment that a server has",
                       .where = c.place("trl.tools"),
                       .remedy = "remove it: tools of the server's own are offered to the model"});
  if ((t.environment_factory && !open_env) || !python_tools.empty())
    python = std::make_shared<remote::PythonEnvironment>(
        t.environment_factory, python_tools,
        remote::PythonConfig{.search_paths = std::move(search_paths), .call_seconds = t.environment_timeout});
  std::shared_ptr<environment::Environments> out;
  if (open_env) {
    out =
        std::make_shared<remote::OpenEnv>(remote::OpenEnvConfig{.url = *t.environment_factory,
                                                                .seconds = t.environment_timeout,
                                                                .failures_end_the_run = t.reward_on_failure == "error",
                                                                .tell = tell,
                                                                .stop = run::Interrupt::token()});
  } else if (python && python->steps()) {
    if (!t.tools.empty())
      core::raise_usage("config", 25,
                        {.what = "trl.tools does not go with an environment that is stepped",
                         .where = c.place("trl.tools"),
                         .remedy = "make the tools methods of the environment, in place of step"});
    out = std::make_shared<remote::PythonSteps>(python);
  } else if (python || !built_in.empty()) {
    std::vector<std::shared_ptr<environment::ToolSource>> sources;
    if (!built_in.empty()) sources.push_back(std::make_shared<environment::LocalTools>(std::move(built_in)));
    if (python) sources.push_back(std::make_shared<remote::PythonTools>(python));
    out = std::make_shared<environment::ToolLoop>(std::move(sources), t.max_tool_calling_iterations);
  }
  if (t.reward_funcs.empty() && !matches_features(c) && (!out || out->reward_name().empty()))
    core::raise_usage("config", 24,
                      {.what = "nothing gives a reward",
                       .expected = "trl.reward_funcs, or an environment with step or get_reward",
                       .where = c.place("trl.environment_factory")});
  return out;
}

// Rows for an environment that says at its reset what there is to do: empty messages, which that is appended to.
[[nodiscard]] inline std::vector<data::TokenizedPrompt> prompts_of_resets() {
  constexpr std::int64_t rows =
      4096;  // more than a step has prompts; the task of each is drawn anew in every generation
  std::vector<data::TokenizedPrompt> out;
  for (std::int64_t i = 0; i < rows; ++i)
    out.push_back({.row = i,
                   .ids = {},
                   .prompt = data::Json::array({{{"role", "user"}, {"content", ""}}}),
                   .columns = data::Json::object()});
  return out;
}

// A schema of tools can only be shown to the model in a conversation.
inline void require_messages(const data::TokenizedPrompt& prompt, const RunConfig& c) {
  if (prompt.prompt->is_array()) return;
  core::raise_usage("config", 25,
                    {.what = "tools need prompts that are chat messages",
                     .found = "a text in dataset row " + std::to_string(prompt.row),
                     .where = c.place(c.trl.tools.empty() ? "trl.environment_factory" : "trl.tools"),
                     .remedy = "make the prompt a list of {role, content} messages"});
}

namespace detail {

// The tokens that follow the end of the model's turn up to where it speaks again.
class Continuation {
 public:
  Continuation(const LanguageModel& model, data::Json kwargs) : model_(model), kwargs_(std::move(kwargs)) {}

  // Templates may show earlier turns in another way (without their reasoning), so the end of the model's turn is found,
  // not compared: by words that stand in its content, and in the arguments of its call when a tool answers.
  [[nodiscard]] std::vector<data::TokenId> operator()(const data::Json& observation) const {
    static const std::string words = "rlalgo-model-turn";
    data::Json turn = {{"role", "assistant"}, {"content", words}};
    data::Json messages = data::Json::array({{{"role", "user"}, {"content", "dummy"}}});
    if (observation.is_string()) {
      messages.push_back(std::move(turn));
      messages.push_back({{"role", "user"}, {"content", observation}});
    } else {
      if (!observation.empty() && observation.front().value("role", "") == "tool")
        turn["tool_calls"] = data::Json::array(
            {{{"type", "function"},
              {"function", {{"name", observation.front().at("name")}, {"arguments", {{"argument", words}}}}}}});
      messages.push_back(std::move(turn));
      for (const data::Json& message : observation) messages.push_back(message);
    }
    const std::string text = model_.render(messages, true, kwargs_);
    const std::size_t at = text.rfind(words);
    if (at == std::string::npos)
      core::raise_usage("config", 26,
                        {.what = "the chat template cannot be continued turn by turn",
                         .found = "the model's words are not in what it renders",
                         .remedy = "use a template that renders every turn, such as chatml"});
    std::vector<data::TokenId> ids = model_.tokenizer.encode(text.substr(at + words.size()), false);
    const auto end = std::find_if(ids.begin(), ids.end(), [&](data::TokenId id) {
      return std::find(model_.stop_ids.begin(), model_.stop_ids.end(), id) != model_.stop_ids.end();
    });
    if (end != ids.end()) ids.erase(ids.begin(), end + 1);
    return ids;
  }

 private:
  const LanguageModel& model_;
  data::Json kwargs_;
};

}  // namespace detail

// `messages`: the prompts are chat messages; else observations follow as plain text. `model` must outlive it.
[[nodiscard]] inline inference::Dialogue dialogue(const LanguageModel& model, const data::Json& kwargs,
                                                  const data::Json& tools, bool messages) {
  inference::Dialogue out;
  out.open = [&model, kwargs, tools](const data::Json& prompt, const data::Json& observation) {
    data::Json opened = prompt;
    data::Json& last = prompt.is_string() ? opened : opened.back()["content"];
    if (last.is_array())  // parts
      last.push_back({{"type", "text"}, {"text", observation}});
    else
      last = (last.is_string() ? last.get<std::string>() : "") + observation.get<std::string>();
    return model.encode(opened, kwargs, tools);
  };
  out.read = [&model, called = !tools.is_null()](std::span<const data::TokenId> ids) {
    while (!ids.empty() && std::find(model.stop_ids.begin(), model.stop_ids.end(), ids.back()) != model.stop_ids.end())
      ids = ids.first(ids.size() - 1);
    const std::string text = model.tokenizer.decode(ids);
    return called ? environment::assistant_message(text) : data::Json{{"role", "assistant"}, {"content", text}};
  };
  if (messages)
    out.reply = detail::Continuation(model, kwargs);
  else
    out.reply = [&model](const data::Json& observation) {
      std::string text;
      if (observation.is_string()) return model.tokenizer.encode(observation.get_ref<const std::string&>(), false);
      for (const data::Json& message : observation) text += message.at("content").get<std::string>();
      return model.tokenizer.encode(text, false);
    };
  return out;
}

}  // namespace rlalgo::config
