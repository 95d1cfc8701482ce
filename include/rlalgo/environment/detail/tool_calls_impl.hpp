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

inline constexpr std::string_view python_tag = "<|python_tag|>";

RLALGO_INLINE nlohmann::ordered_json bare_calls(std::string_view text) {
  using Json = nlohmann::ordered_json;
  Json out = Json::array();
  text = trimmed(text);
  if (text.starts_with(python_tag)) text = trimmed(text.substr(python_tag.size()));
  while (!text.empty()) {
    if (text.front() != '{') return Json::array();
    // To the brace that closes the object.
    std::size_t end = 0, depth = 0;
    bool quoted = false;
    for (; end < text.size(); ++end) {
      const char c = text[end];
      if (quoted && c == '\\') {
        ++end;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && c == '{') {
        ++depth;
      } else if (!quoted && c == '}' && --depth == 0) {
        break;
      }
    }
    if (end >= text.size()) return Json::array();
    Json call = core::read_json<Json>(text.substr(0, end + 1)).value;
    if (!call.is_object() || !call.contains("parameters")) return Json::array();
    for (const auto& [key, value] : call.items())
      if (key != "name" && key != "parameters" && !(key == "type" && value == "function")) return Json::array();
    const std::optional<Json> read =
        tool_call(Json{{"name", call.value("name", Json())}, {"arguments", call["parameters"]}}.dump());
    if (!read) return Json::array();
    out.push_back(*read);
    text = trimmed(text.substr(end + 1));
    if (text.starts_with(";")) text = trimmed(text.substr(1));
  }
  return out;
}

RLALGO_INLINE BareStart bare_start(std::string_view text) {
  std::string bare;
  for (const char c : text)
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') bare += c;
  std::string_view rest = bare;
  if (python_tag.starts_with(rest.substr(0, python_tag.size())) && rest.size() < python_tag.size())
    return BareStart::perhaps;
  if (rest.starts_with(python_tag)) rest.remove_prefix(python_tag.size());
  BareStart out = BareStart::no;
  for (const std::string_view begin :
       {std::string_view("{\"name\":\""), std::string_view("{\"type\":\"function\",\"name\"")}) {
    if (rest.starts_with(begin)) return BareStart::yes;
    if (begin.starts_with(rest)) out = BareStart::perhaps;
  }
  return out;
}

}  // namespace detail

RLALGO_INLINE nlohmann::ordered_json assistant_message(const std::string& text) {
  using Json = nlohmann::ordered_json;
  constexpr std::string_view function = "<function=";
  const bool llama = text.find("<tool_call>") == std::string::npos && text.find(function) != std::string::npos;
  const std::string_view open = llama ? function : "<tool_call>", close = llama ? "</function>" : "</tool_call>";
  const Json plain = {{"role", "assistant"}, {"content", text}};
  Json calls = detail::bare_calls(text);
  if (!calls.empty()) return {{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}};
  std::string_view rest = text;
  std::string_view content;
  for (std::size_t begin = rest.find(open); begin != std::string_view::npos; begin = rest.find(open)) {
    const std::size_t end = rest.find(close, begin + open.size());
    if (end == std::string_view::npos) return plain;
    const std::string_view inside = rest.substr(begin + open.size(), end - begin - open.size());
    std::optional<Json> call;
    if (llama) {
      const std::size_t name = inside.find('>');
      if (name == std::string_view::npos) return plain;
      call = detail::tool_call(Json{{"name", inside.substr(0, name)}, {"arguments", inside.substr(name + 1)}}.dump());
    } else {
      call = detail::tool_call(inside);
    }
    if (!call) return plain;
    if (calls.empty()) content = detail::trimmed(rest.substr(0, begin));
    calls.push_back(*std::move(call));
    rest = rest.substr(end + close.size());
  }
  if (calls.empty()) return plain;
  return {{"role", "assistant"}, {"content", std::string(content)}, {"tool_calls", std::move(calls)}};
}

}  // namespace rlalgo::environment
