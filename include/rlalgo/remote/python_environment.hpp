// Environments and tools written in Python, in a process of their own.
//
//   trl.environment_factory: games.Guess      a class: reset(**row) and step(text) → (observation, reward, done), or
//                                             reset(**row), tools as public methods, and get_reward() (TRL's form)
//   trl.tools: [tools.search]                 functions with type hints and a docstring
//
// One instance plays one episode and is reset for the next; all episodes of a generation are asked in one question.
// Several environments of a run (several_python_environments) are classes in one process, each with instances of its own.
// reset gets the row's columns, and `seed` where it names it. A tool's result is str(result); what it raises is shown to
// the model. Coroutines run at once.
//
// Errors: [rlalgo.remote.50] Python cannot be started; [.51] a class or function cannot be loaded or offered as a tool;
// [.52] reset, step or get_reward raised; [.53] it returned something else than agreed; [.54] it did not answer in time
// and was killed; [.55] the process ended or answered outside the protocol.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/environment/tools.hpp>
#include <rlalgo/remote/detail/environment_host_source.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/python_worker.hpp>

namespace rlalgo::remote {

class PythonEnvironment {
 public:
  using Json = nlohmann::ordered_json;

  // `environment`: "module.Class", or nothing when there are only tools. PythonConfig::call_seconds limits each turn.
  PythonEnvironment(const std::optional<std::string>& environment, const std::vector<std::string>& tools,
                    PythonConfig config);

  [[nodiscard]] bool steps() const noexcept { return steps_; }  // it has step(text); else tools only
  [[nodiscard]] const std::string& reward_name() const noexcept { return reward_name_; }  // empty: gives none
  [[nodiscard]] const std::string& kind() const noexcept { return kind_; }  // module and name of its class
  [[nodiscard]] const Json& schemas() const noexcept { return schemas_; }   // of the tools, then of its methods

  std::vector<Json> begin(std::span<const environment::Start> starts);

  std::vector<environment::Turn> step(std::span<const environment::Said> said);

  std::vector<environment::ToolResult> call(std::span<const environment::ToolCall> calls);

  // get_reward() of each episode, NaN for None; 0 where there is no such method.
  std::vector<double> rewards(std::size_t episodes);

 private:
  friend std::vector<std::shared_ptr<PythonEnvironment>> several_python_environments(
      const std::vector<std::string>& names, const std::vector<std::string>& tools, const PythonConfig& config);
  PythonEnvironment(std::shared_ptr<detail::PythonProcess> process, std::string name, PythonConfig config)
      : config_(std::move(config)), name_(std::move(name)), process_(std::move(process)) {}

  Json load(const std::vector<std::string>& environments, const std::vector<std::string>& tools);
  // What was loaded at `place` of `count` environments, with the tools of all.
  void become(const Json& loaded, std::size_t place, std::size_t count);

  Json ask(Json question, const std::string& during);

  Json ask(const Json& question, double seconds, const std::string& during);

  [[noreturn]] void fail(const detail::PythonProcess::Failure& failure, double seconds,
                         const std::string& during) const;

  const Json& list(const Json& answer, const char* key, std::size_t expected);

  PythonConfig config_;
  std::string name_;
  std::shared_ptr<detail::PythonProcess> process_;
  std::optional<std::size_t> place_;  // among several of one process
  bool steps_ = false;
  std::string reward_name_, kind_;
  Json schemas_ = Json::array();
};

// One for each of "module.Class" in `names`, all with the same tools, in one process.
[[nodiscard]] std::vector<std::shared_ptr<PythonEnvironment>> several_python_environments(
    const std::vector<std::string>& names, const std::vector<std::string>& tools, const PythonConfig& config);

// A stepped class as the environments of a run.
class PythonSteps final : public environment::Environments {
 public:
  explicit PythonSteps(std::shared_ptr<PythonEnvironment> python) : python_(std::move(python)) {}
  [[nodiscard]] std::string reward_name() const override { return python_->reward_name(); }
  RLALGO_INLINE std::vector<environment::Json> begin(std::span<const environment::Start> starts) override;
  std::vector<environment::Turn> step(std::span<const environment::Said> said) override { return python_->step(said); }
  RLALGO_INLINE std::vector<environment::Ending> finish() override;

 private:
  std::shared_ptr<PythonEnvironment> python_;
  std::size_t episodes_ = 0;
};

// Functions and methods as tools.
class PythonTools final : public environment::ToolSource {
 public:
  explicit PythonTools(std::shared_ptr<PythonEnvironment> python) : python_(std::move(python)) {}
  [[nodiscard]] environment::Json schemas() const override { return python_->schemas(); }
  RLALGO_INLINE std::vector<environment::ToolResult> call(std::span<const environment::ToolCall> calls) override;
  [[nodiscard]] std::string reward_name() const override { return python_->reward_name(); }
  RLALGO_INLINE std::vector<environment::Json> begin(std::span<const environment::Start> starts) override;
  std::vector<double> rewards(std::size_t episodes) override { return python_->rewards(episodes); }

 private:
  std::shared_ptr<PythonEnvironment> python_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/python_environment_impl.hpp>
#endif
