// Definitions of python_environment.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/environment/tools.hpp>
#include <rlalgo/remote/detail/environment_host_source.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/python_environment.hpp>
#include <rlalgo/remote/python_worker.hpp>

namespace rlalgo::remote {

RLALGO_INLINE PythonEnvironment::PythonEnvironment(const std::optional<std::string>& environment,
                                                   const std::vector<std::string>& tools, PythonConfig config)
    : PythonEnvironment(std::make_shared<detail::PythonProcess>(), environment.value_or("trl.tools"),
                        std::move(config)) {
  become(load(environment ? std::vector{*environment} : std::vector<std::string>(), tools), 0, environment ? 1 : 0);
}

RLALGO_INLINE std::vector<std::shared_ptr<PythonEnvironment>> several_python_environments(
    const std::vector<std::string>& names, const std::vector<std::string>& tools, const PythonConfig& config) {
  const auto process = std::make_shared<detail::PythonProcess>();
  std::vector<std::shared_ptr<PythonEnvironment>> out;
  for (const std::string& name : names)
    out.push_back(std::shared_ptr<PythonEnvironment>(new PythonEnvironment(process, name, config)));
  if (out.empty()) return out;
  const PythonEnvironment::Json loaded = out.front()->load(names, tools);
  for (std::size_t i = 0; i < out.size(); ++i) out[i]->become(loaded, i, out.size());
  return out;
}

RLALGO_INLINE PythonEnvironment::Json PythonEnvironment::load(const std::vector<std::string>& environments,
                                                              const std::vector<std::string>& tools) {
  if (const int error = process_->start(config_.python, detail::environment_host_source); error != 0)
    core::raise("remote", 50,
                {.what = "Python for the environment cannot be started",
                 .found = std::strerror(error),
                 .where = process_->program(),
                 .remedy = "install python3, or set RLALGO_PYTHON to one"});
  return ask({{"op", "load"},
              {"environments", environments},
              {"tools", tools},
              {"paths", detail::module_paths(config_.search_paths)}},
             config_.start_seconds, "loading");
}

RLALGO_INLINE void PythonEnvironment::become(const Json& loaded, std::size_t place, std::size_t count) {
  for (const Json& schema : loaded.value("schemas", Json::array())) schemas_.push_back(schema);
  const Json& all = list(loaded, "environments", count);
  if (count == 0) return;
  const Json& own = all.at(place);
  if (count > 1) place_ = place;
  steps_ = own.value("steps", false);
  reward_name_ = own.value("reward", "");
  kind_ = own.value("kind", "");
  for (const Json& schema : own.value("schemas", Json::array())) schemas_.push_back(schema);
}

RLALGO_INLINE std::vector<PythonEnvironment::Json> PythonEnvironment::begin(
    std::span<const environment::Start> starts) {
  Json rows = Json::array(), seeds = Json::array();
  for (const environment::Start& start : starts) {
    rows.push_back(start.row);
    // Where the environment owns the data, the seed may say what the task is: a group shares it.
    const bool owns =
        start.own_task || start.row == Json{{"prompt", Json::array({{{"role", "user"}, {"content", ""}}})}};
    seeds.push_back(owns ? start.group_seed : start.seed);
  }
  const Json answer = ask({{"op", "begin"}, {"rows", std::move(rows)}, {"seeds", std::move(seeds)}}, "reset");
  const Json& observations = list(answer, "observations", starts.size());
  return {observations.begin(), observations.end()};
}

RLALGO_INLINE std::vector<environment::Turn> PythonEnvironment::step(std::span<const environment::Said> said) {
  Json texts = Json::array();
  for (const environment::Said& one : said) texts.push_back(Json::array({one.episode, one.message.at("content")}));
  const Json answer = ask({{"op", "step"}, {"said", std::move(texts)}}, "step");
  std::vector<environment::Turn> out;
  for (const Json& turn : list(answer, "turns", said.size()))
    out.push_back({turn.at(0), detail::number_of(turn.at(1)), turn.at(2).get<bool>()});
  return out;
}

RLALGO_INLINE std::vector<environment::ToolResult> PythonEnvironment::call(
    std::span<const environment::ToolCall> calls) {
  Json asked = Json::array();
  for (const environment::ToolCall& one : calls) asked.push_back(Json::array({one.episode, one.name, one.arguments}));
  const Json answer = ask({{"op", "call"}, {"calls", std::move(asked)}}, "a tool call");
  std::vector<environment::ToolResult> out;
  for (const Json& result : list(answer, "results", calls.size()))
    out.push_back({result.at(0).get<std::string>(), result.at(1).get<bool>()});
  return out;
}

RLALGO_INLINE std::vector<double> PythonEnvironment::rewards(std::size_t episodes) {
  const Json answer = ask({{"op", "finish"}, {"episodes", episodes}}, "get_reward");
  std::vector<double> out;
  for (const Json& value : list(answer, "rewards", episodes)) out.push_back(detail::number_of(value));
  return out;
}

RLALGO_INLINE PythonEnvironment::Json PythonEnvironment::ask(Json question, const std::string& during) {
  if (place_) question["of"] = *place_;
  return ask(question, config_.call_seconds, during);
}

RLALGO_INLINE PythonEnvironment::Json PythonEnvironment::ask(const Json& question, double seconds,
                                                             const std::string& during) {
  auto result = process_->ask(question, seconds);
  if (Json* answer = std::get_if<Json>(&result)) return std::move(*answer);
  fail(std::get<detail::PythonProcess::Failure>(result), seconds, during);
}

RLALGO_INLINE void PythonEnvironment::fail(const detail::PythonProcess::Failure& failure, double seconds,
                                           const std::string& during) const {
  using Trouble = detail::PythonProcess::Trouble;
  const std::string the_environment = "the environment '" + name_ + "' ";
  if (failure.trouble == Trouble::late)
    core::raise("remote", 54,
                {.what = the_environment + "did not answer in time",
                 .expected = "an answer within " + std::to_string(seconds) + " s",
                 .where = during,
                 .remedy = "make it faster, or raise trl.environment_timeout; its process was killed"});
  if (failure.trouble == Trouble::ended)
    core::raise("remote", 55,
                {.what = "the Python process of " + the_environment + "ended",
                 .found = failure.found,
                 .where = during,
                 .remedy = "what it printed is above"});
  if (failure.trouble == Trouble::unreadable)
    core::raise("remote", 55,
                {.what = "the Python process of " + the_environment + "answered outside the protocol",
                 .found = failure.found,
                 .where = during,
                 .remedy = "file descriptor 3 belongs to the trainer: do not write to it"});
  const std::string kind = failure.answer.value("kind", "");
  const auto episode = failure.answer.find("episode");
  const std::string where = during + (episode == failure.answer.end() ? "" : " of episode " + episode->dump());
  if (kind == "load")
    core::raise("remote", 51, {.what = "cannot load the environment or its tools", .found = failure.found});
  if (kind == "value")
    core::raise(
        "remote", 53,
        {.what = the_environment + "returned something else than agreed",
         .found = failure.found,
         .expected =
             "reset: a text, text parts or None; step: (observation, reward, done); get_reward: a number or None",
         .where = where});
  core::raise("remote", 52, {.what = the_environment + "raised an exception", .found = failure.found, .where = where});
}

RLALGO_INLINE const PythonEnvironment::Json& PythonEnvironment::list(const Json& answer, const char* key,
                                                                     std::size_t expected) {
  const auto found = answer.find(key);
  if (found == answer.end() || !found->is_array() || found->size() != expected)
    fail(process_->unreadable(answer.dump()), 0.0, key);
  return *found;
}

RLALGO_INLINE std::vector<environment::Json> PythonSteps::begin(std::span<const environment::Start> starts) {
  episodes_ = starts.size();
  return python_->begin(starts);
}

RLALGO_INLINE std::vector<environment::Ending> PythonSteps::finish() {
  std::vector<environment::Ending> out;
  for (const double reward : python_->rewards(episodes_)) out.push_back({.reward = reward});
  return out;
}

RLALGO_INLINE std::vector<environment::ToolResult> PythonTools::call(std::span<const environment::ToolCall> calls) {
  return python_->call(calls);
}

RLALGO_INLINE std::vector<environment::Json> PythonTools::begin(std::span<const environment::Start> starts) {
  return python_->begin(starts);
}

}  // namespace rlalgo::remote
