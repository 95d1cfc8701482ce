// Completions of several turns, as the configuration asks for them: who answers the model, and how messages become
// tokens.
//
//   trl.environment_factory: module.Class        remote/python_environment.hpp
//   trl.environment_factory: ws://HOST:PORT      remote/open_env.hpp
//   trl.environment_factory: {name: one of these, …}     environment/several.hpp: the column `environment` chooses
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
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/calculator.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/several.hpp>
#include <rlalgo/environment/tool_calls.hpp>
#include <rlalgo/environment/tools.hpp>
#include <rlalgo/inference/multi_turn.hpp>
#include <rlalgo/remote/open_env.hpp>
#include <rlalgo/remote/python_environment.hpp>
#include <rlalgo/run/interrupt.hpp>

namespace rlalgo::config {

namespace detail {

// Makes the environments of a run, one by one.
class EnvironmentMaker {
 public:
  EnvironmentMaker(const RunConfig& c, std::vector<std::filesystem::path> search_paths,
                   std::function<void(const std::string&)> tell)
      : c_(c),
        tell_(std::move(tell)),
        python_config_{.search_paths = std::move(search_paths), .call_seconds = c.trl.environment_timeout} {
    for (const std::string& name : c.trl.tools)
      if (name == "calculator")
        built_in_.push_back(environment::calculator());
      else
        python_tools_.push_back(name);
  }

  // Null: there is none.
  [[nodiscard]] std::shared_ptr<environment::Environments> only() const {
    const std::optional<std::string>& factory = c_.trl.environment_factory;
    if (factory && remote::is_open_env(*factory)) return open_env(*factory, {});
    if (factory || !python_tools_.empty())
      return of_python(std::make_shared<remote::PythonEnvironment>(factory, python_tools_, python_config_), {});
    return built_in_.empty() ? nullptr : of_tools(nullptr);
  }

  [[nodiscard]] std::shared_ptr<environment::Environments> several() const {
    std::vector<std::string> classes;
    for (const data::Json& factory : c_.trl.environment_factories)
      if (!remote::is_open_env(factory.get<std::string>())) classes.push_back(factory.get<std::string>());
    const auto python = remote::several_python_environments(classes, python_tools_, python_config_);
    std::vector<environment::Several::One> all;
    std::size_t next = 0;
    for (const auto& [name, factory] : c_.trl.environment_factories.items()) {
      if (remote::is_open_env(factory.get<std::string>())) {
        all.push_back({name, open_env(factory.get<std::string>(), name)});
        all.back().kind = "openenv." + all.back().environments->reward_name();
      } else {
        all.push_back({name, of_python(python[next], name), python[next]->kind()});
        ++next;
      }
    }
    return std::make_shared<environment::Several>(std::move(all));
  }

 private:
  [[nodiscard]] std::shared_ptr<environment::Environments> open_env(const std::string& url,
                                                                    const std::string& name) const {
    if (!c_.trl.tools.empty()) refuse_tools("that a server has", name, "tools of the server's own are offered");
    return std::make_shared<remote::OpenEnv>(
        remote::OpenEnvConfig{.url = url,
                              .seconds = c_.trl.environment_timeout,
                              .failures_end_the_run = c_.trl.reward_on_failure == "error",
                              .tell = tell_,
                              .stop = run::Interrupt::token()});
  }

  [[nodiscard]] std::shared_ptr<environment::Environments> of_python(
      const std::shared_ptr<remote::PythonEnvironment>& python, const std::string& name) const {
    if (!python->steps()) return of_tools(python);
    if (!c_.trl.tools.empty())
      refuse_tools("that is stepped", name, "make the tools methods of the environment, in place of step");
    return std::make_shared<remote::PythonSteps>(python);
  }

  [[nodiscard]] std::shared_ptr<environment::Environments> of_tools(
      const std::shared_ptr<remote::PythonEnvironment>& python) const {
    std::vector<std::shared_ptr<environment::ToolSource>> sources;
    if (!built_in_.empty()) sources.push_back(std::make_shared<environment::LocalTools>(built_in_));
    if (python) sources.push_back(std::make_shared<remote::PythonTools>(python));
    return core::located(c_.place(c_.trl.tools.empty() ? "trl.environment_factory" : "trl.tools"), [&] {
      return std::make_shared<environment::ToolLoop>(std::move(sources), c_.trl.max_tool_calling_iterations);
    });
  }

  [[noreturn]] void refuse_tools(const std::string& which, const std::string& name, const std::string& remedy) const {
    core::raise_usage("config", 25,
                      {.what = "trl.tools does not go with an environment " + which,
                       .found = name,
                       .where = c_.place("trl.tools"),
                       .remedy = "remove it: " + remedy});
  }

  const RunConfig& c_;
  std::function<void(const std::string&)> tell_;
  remote::PythonConfig python_config_;
  std::vector<environment::Tool> built_in_;
  std::vector<std::string> python_tools_;
};

}  // namespace detail

// Null: completions are single turns. Modules are looked for in `search_paths`.
[[nodiscard]] inline std::shared_ptr<environment::Environments> environments(
    const RunConfig& c, std::vector<std::filesystem::path> search_paths,
    const std::function<void(const std::string&)>& tell = {}) {
  const TrlConfig& t = c.trl;
  const detail::EnvironmentMaker maker(c, std::move(search_paths), tell);
  std::shared_ptr<environment::Environments> out = t.environment_factories.is_object() ? maker.several() : maker.only();
  if (t.reward_funcs.empty() && !matches_features(c) && (!out || out->rewards().empty()))
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
    out.push_back({.row = i, .ids = {}, .prompt = data::empty_prompt(), .columns = data::Json::object()});
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
  Continuation(const LanguageModel& model, data::Json kwargs,
               std::shared_ptr<const text::ChatTemplate> chat_template = nullptr)
      : model_(model), kwargs_(std::move(kwargs)), chat_template_(std::move(chat_template)) {}

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
    const std::string text = model_.render(messages, true, kwargs_, nullptr, chat_template_.get());
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
  std::shared_ptr<const text::ChatTemplate> chat_template_;
};

}  // namespace detail

// What a template is given for tools: nothing for an empty list, for which some show the frame of one.
[[nodiscard]] inline data::Json shown(const data::Json& tools) { return tools.empty() ? data::Json() : tools; }

// `messages`: the prompts are chat messages; else observations follow as plain text. `chat_template`: null: the run's. `model`
// must outlive it.
[[nodiscard]] inline inference::Dialogue dialogue(const LanguageModel& model, const data::Json& kwargs,
                                                  const data::Json& tools, bool messages,
                                                  const std::shared_ptr<const text::ChatTemplate>& chat_template = {}) {
  inference::Dialogue out;
  out.open = [&model, kwargs, tools, chat_template](const data::Json& prompt) {
    return model.encode(prompt, kwargs, shown(tools), chat_template.get());
  };
  out.read = [&model, called = !tools.is_null()](std::span<const data::TokenId> ids) {
    while (!ids.empty() && std::find(model.stop_ids.begin(), model.stop_ids.end(), ids.back()) != model.stop_ids.end())
      ids = ids.first(ids.size() - 1);
    const std::string text = model.tokenizer.decode(ids);
    return called ? environment::assistant_message(text) : data::Json{{"role", "assistant"}, {"content", text}};
  };
  if (messages)
    out.reply = detail::Continuation(model, kwargs, chat_template);
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
