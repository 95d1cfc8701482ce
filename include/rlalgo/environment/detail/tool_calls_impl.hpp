// Definitions of tool_calls.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/environment/tool_calls.hpp>

namespace rlalgo::environment {

namespace detail {

RLALGO_INLINE std::optional<nlohmann::ordered_json> tool_call(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const Json call = core::read_json<Json>(text).value;
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return std::nullopt;
  Json arguments = call.contains("arguments") ? call["arguments"] : Json::object();
  if (arguments.is_string()) arguments = core::read_json<Json>(arguments.get_ref<const std::string&>()).value;
  if (!arguments.is_object()) return std::nullopt;
  return Json{{"type", "function"}, {"function", {{"name", call["name"]}, {"arguments", std::move(arguments)}}}};
}

RLALGO_INLINE std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace detail

RLALGO_INLINE nlohmann::ordered_json assistant_message(const std::string& text) {
  using Json = nlohmann::ordered_json;
  constexpr std::string_view open = "<tool_call>", close = "</tool_call>";
  const Json plain = {{"role", "assistant"}, {"content", text}};
  Json calls = Json::array();
  std::string_view rest = text;
  std::string_view content;
  for (std::size_t begin = rest.find(open); begin != std::string_view::npos; begin = rest.find(open)) {
    const std::size_t end = rest.find(close, begin + open.size());
    if (end == std::string_view::npos) return plain;
    const std::string_view inside = rest.substr(begin + open.size(), end - begin - open.size());
    std::optional<Json> call = detail::tool_call(inside);
    if (!call) return plain;
    if (calls.empty()) content = detail::trimmed(rest.substr(0, begin));
    calls.push_back(*std::move(call));
    rest = rest.substr(end + close.size());
  }
  if (calls.empty()) return plain;
  return {{"role", "assistant"}, {"content", std::string(content)}, {"tool_calls", std::move(calls)}};
}

}  // namespace rlalgo::environment
