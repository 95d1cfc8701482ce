// Tool calling as an environment: the model's calls are run and their results are its observation.
//
// A message without calls ends the episode, and so does one beyond `max_iterations`. Every result becomes {"role":
// "tool", "name", "content"}; an unknown tool or one that fails is answered with an error that the model can read, and
// counted. Sources of tools (`ToolSource`): functions of this program (`LocalTools`), another process
// (remote/python_environment.hpp).
// Source: TRL `GRPOTrainer._tool_call_loop`.
//
// Errors (usage): [rlalgo.environment.2] two tools have one name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/environment/concept.hpp>

namespace rlalgo::environment {

struct ToolCall {
  std::size_t episode = 0;
  std::string name;
  Json arguments;  // an object
};

struct ToolResult {
  std::string content;
  bool failed = false;
};

// Where tools come from; sees the episodes begin and end, so that its tools may have a state per episode.
class ToolSource {
 public:
  virtual ~ToolSource() = default;
  // [{"type": "function", "function": {"name", "description", "parameters"}}, …]
  [[nodiscard]] virtual Json schemas() const = 0;
  virtual std::vector<ToolResult> call(std::span<const ToolCall> calls) = 0;
  // As Environments; by default tools are stateless, say nothing first and give no reward.
  [[nodiscard]] virtual std::string reward_name() const { return {}; }
  virtual std::vector<Json> begin(std::span<const Start> starts) { return std::vector<Json>(starts.size()); }
  virtual std::vector<double> rewards(std::size_t episodes) { return std::vector<double>(episodes, 0.0); }
};

// A tool of this program: arguments → what the model reads. What it throws is shown to the model.
struct Tool {
  Json schema;  // {"name", "description", "parameters": {…JSON schema…}}
  std::function<std::string(const Json& arguments)> run;
};

class LocalTools final : public ToolSource {
 public:
  explicit LocalTools(std::vector<Tool> tools) : tools_(std::move(tools)) {}

  [[nodiscard]] RLALGO_INLINE Json schemas() const override;

  RLALGO_INLINE std::vector<ToolResult> call(std::span<const ToolCall> calls) override;

 private:
  [[nodiscard]] ToolResult one(const ToolCall& call) const;

  std::vector<Tool> tools_;
};

class ToolLoop final : public Environments {
 public:
  // `max_iterations`: rounds of calls in an episode; nothing: no limit but the completion's length.
  explicit ToolLoop(std::vector<std::shared_ptr<ToolSource>> sources, std::optional<std::int64_t> max_iterations = {});

  [[nodiscard]] RLALGO_INLINE std::string reward_name() const override;

  [[nodiscard]] RLALGO_INLINE Json tools() const override;

  RLALGO_INLINE std::vector<Json> begin(std::span<const Start> starts) override;

  RLALGO_INLINE std::vector<Turn> step(std::span<const Said> said) override;

  RLALGO_INLINE std::vector<Ending> finish() override;

 private:
  std::vector<std::shared_ptr<ToolSource>> sources_;
  std::optional<std::int64_t> max_iterations_;
  std::map<std::string, std::size_t> source_of_;
  std::optional<std::size_t> rewarding_;
  std::vector<Ending> endings_;       // of the episodes begun
  std::vector<std::int64_t> rounds_;  // rounds of calls so far
};

}  // namespace rlalgo::environment

#ifndef RLALGO_COMPILED
#include <rlalgo/environment/detail/tools_impl.hpp>
#endif
