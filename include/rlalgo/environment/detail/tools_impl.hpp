// Definitions of tools.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/tools.hpp>

namespace rlalgo::environment {

namespace detail {

// What the model reads of a failure, as TRL tells it: Python's str({"error": text}).
inline std::string told_error(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out = std::string("{'error': ") + quote;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    constexpr const char* digits = "0123456789abcdef";
    if (c == '\\' || c == quote)
      out += std::string("\\") + c;
    else if (c == '\n' || c == '\r' || c == '\t')
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    else if (code < 0x20 || code == 0x7f)
      out += std::string("\\x") + digits[code >> 4U] + digits[code & 15U];
    else
      out += c;
  }
  return out + quote + "}";
}

}  // namespace detail

RLALGO_INLINE Json LocalTools::schemas() const {
  Json out = Json::array();
  for (const Tool& tool : tools_) out.push_back({{"type", "function"}, {"function", tool.schema}});
  return out;
}

RLALGO_INLINE std::vector<ToolResult> LocalTools::call(std::span<const ToolCall> calls) {
  std::vector<ToolResult> out;
  for (const ToolCall& call : calls) out.push_back(one(call));
  return out;
}

RLALGO_INLINE ToolResult LocalTools::one(const ToolCall& call) const {
  for (const Tool& tool : tools_) {
    if (tool.schema.at("name") != call.name) continue;
    try {
      return {tool.run(call.arguments), false};
    } catch (const std::exception& e) {
      return {detail::told_error(e.what()), true};
    }
  }
  return {detail::told_error("Tool " + call.name + " not found."), true};
}

RLALGO_INLINE ToolLoop::ToolLoop(std::vector<std::shared_ptr<ToolSource>> sources,
                                 std::optional<std::int64_t> max_iterations)
    : sources_(std::move(sources)), max_iterations_(max_iterations) {
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    if (!sources_[s]->reward_name().empty()) rewarding_ = s;
    for (const Json& schema : sources_[s]->schemas()) {
      const std::string name = schema.at("function").at("name").get<std::string>();
      if (!source_of_.emplace(name, s).second)
        core::raise_usage("environment", 2,
                          {.what = "two tools have one name", .found = name, .remedy = "rename one of them"});
    }
  }
}

RLALGO_INLINE std::string ToolLoop::reward_name() const {
  return rewarding_ ? sources_[*rewarding_]->reward_name() : std::string();
}

RLALGO_INLINE Json ToolLoop::tools() const {
  Json out = Json::array();
  for (const auto& source : sources_)
    for (const Json& schema : source->schemas()) out.push_back(schema);
  return out;
}

RLALGO_INLINE std::vector<Json> ToolLoop::begin(std::span<const Start> starts) {
  endings_.assign(starts.size(), {});
  rounds_.assign(starts.size(), 0);
  std::vector<Json> out(starts.size());
  for (const auto& source : sources_) {
    std::vector<Json> said = source->begin(starts);
    for (std::size_t i = 0; i < said.size(); ++i)
      if (!said[i].is_null()) out[i] = std::move(said[i]);
  }
  return out;
}

RLALGO_INLINE std::vector<Turn> ToolLoop::step(std::span<const Said> said) {
  std::vector<std::vector<ToolCall>> asked(sources_.size() + 1);  // last: tools that nobody has
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> place(asked.size());
  std::vector<Turn> turns(said.size());
  for (std::size_t i = 0; i < said.size(); ++i) {
    const std::size_t episode = said[i].episode;
    const auto calls = said[i].message.find("tool_calls");
    if (calls == said[i].message.end() || calls->empty() || (max_iterations_ && rounds_[episode] >= *max_iterations_)) {
      turns[i].done = true;
      continue;
    }
    ++rounds_[episode];
    turns[i].observation = Json::array();
    for (const Json& call : *calls) {
      const Json& function = call.at("function");
      const std::string name = function.at("name").get<std::string>();
      turns[i].observation.push_back({{"role", "tool"}, {"name", name}, {"content", ""}});
      const auto source = source_of_.find(name);
      const std::size_t s = source == source_of_.end() ? sources_.size() : source->second;
      asked[s].push_back({episode, name, function.at("arguments")});
      place[s].emplace_back(i, turns[i].observation.size() - 1);
    }
  }
  LocalTools nobody({});
  for (std::size_t s = 0; s < asked.size(); ++s) {
    if (asked[s].empty()) continue;
    const std::vector<ToolResult> results = s < sources_.size() ? sources_[s]->call(asked[s]) : nobody.call(asked[s]);
    for (std::size_t k = 0; k < results.size(); ++k) {
      const auto [i, at] = place[s][k];
      turns[i].observation[at]["content"] = results[k].content;
      Ending& ending = endings_[asked[s][k].episode];
      ++ending.tool_calls;
      ending.tool_failures += results[k].failed ? 1 : 0;
    }
  }
  return turns;
}

RLALGO_INLINE std::vector<Ending> ToolLoop::finish() {
  if (rewarding_) {
    const std::vector<double> rewards = sources_[*rewarding_]->rewards(endings_.size());
    for (std::size_t i = 0; i < endings_.size(); ++i) endings_[i].reward = rewards[i];
  }
  return endings_;
}

}  // namespace rlalgo::environment
