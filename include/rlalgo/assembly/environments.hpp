// The environments of a run, by name: who answers the model, and with which tools.
//
//   module.Class            remote/python_environment.hpp
//   ws://HOST:PORT          remote/open_env.hpp
//   {name: one of these}    environment/several.hpp: the column `environment` chooses
//   tools                   calculator, the built-in one, and Python functions
//
// In C++ an environment is any type with reset and step (environment/concept.hpp), and needs no name.
//
// Errors (usage): [rlalgo.config.24] neither reward functions nor an environment that rewards; [.25] tools with a
// stepped environment, or with prompts that are not messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/calculator.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/several.hpp>
#include <rlalgo/environment/tools.hpp>
#include <rlalgo/remote/open_env.hpp>
#include <rlalgo/remote/python_environment.hpp>
#include <rlalgo/run/interrupt.hpp>

namespace rlalgo::assembly {

struct EnvironmentsConfig {
  std::optional<std::string> factory = {};  // one, or
  data::Json factories = nullptr;           // {name: factory}
  std::vector<std::string> tools = {};
  std::optional<std::int64_t> max_tool_rounds = {};  // unset: no limit
  double seconds = 60.0;                             // for an answer
  bool failures_end_the_run = true;
  std::vector<std::filesystem::path> search_paths = {};  // of Python modules
  std::function<void(const std::string&)> tell = {};     // hears of failures
  std::string factory_where = "environment_factory",
              tools_where = "tools";  // the places that named them, for error texts

  [[nodiscard]] const std::string& where() const { return tools.empty() ? factory_where : tools_where; }
};

namespace detail {

// Makes the environments of a run, one by one.
class EnvironmentMaker {
 public:
  explicit EnvironmentMaker(const EnvironmentsConfig& c)
      : c_(c), python_config_{.search_paths = c.search_paths, .call_seconds = c.seconds} {
    for (const std::string& name : c.tools)
      if (name == "calculator")
        built_in_.push_back(environment::calculator());
      else
        python_tools_.push_back(name);
  }

  // Null: there is none.
  [[nodiscard]] std::shared_ptr<environment::Environments> only() const {
    const std::optional<std::string>& factory = c_.factory;
    if (factory && remote::is_open_env(*factory)) return open_env(*factory, {});
    if (factory || !python_tools_.empty())
      return of_python(std::make_shared<remote::PythonEnvironment>(factory, python_tools_, python_config_), {});
    return built_in_.empty() ? nullptr : of_tools(nullptr);
  }

  [[nodiscard]] std::shared_ptr<environment::Environments> several() const {
    std::vector<std::string> classes;
    for (const data::Json& factory : c_.factories)
      if (!remote::is_open_env(factory.get<std::string>())) classes.push_back(factory.get<std::string>());
    const auto python = remote::several_python_environments(classes, python_tools_, python_config_);
    std::vector<environment::Several::One> all;
    std::size_t next = 0;
    for (const auto& [name, factory] : c_.factories.items()) {
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
    if (!c_.tools.empty()) refuse_tools("that a server has", name, "tools of the server's own are offered");
    return std::make_shared<remote::OpenEnv>(remote::OpenEnvConfig{.url = url,
                                                                   .seconds = c_.seconds,
                                                                   .failures_end_the_run = c_.failures_end_the_run,
                                                                   .tell = c_.tell,
                                                                   .stop = run::Interrupt::token()});
  }

  [[nodiscard]] std::shared_ptr<environment::Environments> of_python(
      const std::shared_ptr<remote::PythonEnvironment>& python, const std::string& name) const {
    if (!python->steps()) return of_tools(python);
    if (!c_.tools.empty())
      refuse_tools("that is stepped", name, "make the tools methods of the environment, in place of step");
    return std::make_shared<remote::PythonSteps>(python);
  }

  [[nodiscard]] std::shared_ptr<environment::Environments> of_tools(
      const std::shared_ptr<remote::PythonEnvironment>& python) const {
    std::vector<std::shared_ptr<environment::ToolSource>> sources;
    if (!built_in_.empty()) sources.push_back(std::make_shared<environment::LocalTools>(built_in_));
    if (python) sources.push_back(std::make_shared<remote::PythonTools>(python));
    return core::located(
        c_.where(), [&] { return std::make_shared<environment::ToolLoop>(std::move(sources), c_.max_tool_rounds); });
  }

  [[noreturn]] void refuse_tools(const std::string& which, const std::string& name, const std::string& remedy) const {
    core::raise_usage("config", 25,
                      {.what = "trl.tools does not go with an environment " + which,
                       .found = name,
                       .where = c_.tools_where,
                       .remedy = "remove it: " + remedy});
  }

  const EnvironmentsConfig& c_;
  remote::PythonConfig python_config_;
  std::vector<environment::Tool> built_in_;
  std::vector<std::string> python_tools_;
};

}  // namespace detail

// Null: completions are single turns.
[[nodiscard]] inline std::shared_ptr<environment::Environments> environments(const EnvironmentsConfig& c) {
  const detail::EnvironmentMaker maker(c);
  return c.factories.is_object() ? maker.several() : maker.only();
}

// Where nothing else gives a reward.
inline void require_reward(const environment::Environments* environments, const std::string& where) {
  if (environments == nullptr || environments->rewards().empty())
    core::raise_usage("config", 24,
                      {.what = "nothing gives a reward",
                       .expected = "trl.reward_funcs, or an environment with step or get_reward",
                       .where = where});
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
inline void require_messages(const data::TokenizedPrompt& prompt, const std::string& place) {
  if (prompt.prompt->is_array()) return;
  core::raise_usage("config", 25,
                    {.what = "tools need prompts that are chat messages",
                     .found = "a text in dataset row " + std::to_string(prompt.row),
                     .where = place,
                     .remedy = "make the prompt a list of {role, content} messages"});
}

}  // namespace rlalgo::assembly
