// What a server's reply of a failure says: the innermost message of it.
//
//   {"error": {"message": "…"}}   {"message": …}   {"detail": …}   {"error": "…"}
//   {"detail": [{"loc": ["body", "n"], "msg": "Field required"}]}  → "body.n: Field required", all of them
//
// A server that passes on another's reply puts it into its own text, as JSON or as Python shows it: "400, message: b'{\"error\":
// {\"message\": \"…\"}}'". The message within is what somebody can act on, so it is what is returned.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>

namespace rlalgo::http {

namespace detail {

// The text that a reply's object holds; "": none.
[[nodiscard]] inline std::string message_member(const nlohmann::ordered_json& value, int depth = 0) {
  if (value.is_string()) return value.get<std::string>();
  if (depth > 8) return {};
  if (value.is_array()) {
    std::string out;
    for (const auto& one : value)
      if (const std::string text = message_member(one, depth + 1); !text.empty())
        out += (out.empty() ? "" : "; ") + text;
    return out;
  }
  if (!value.is_object()) return {};
  if (const auto msg = value.find("msg"); msg != value.end() && msg->is_string()) {
    std::string place;
    if (const auto loc = value.find("loc"); loc != value.end() && loc->is_array())
      for (const auto& part : *loc)
        place += (place.empty() ? "" : ".") + (part.is_string() ? part.get<std::string>() : part.dump());
    return (place.empty() ? "" : place + ": ") + msg->get<std::string>();
  }
  for (const char* key : {"message", "error", "detail", "reason"})
    if (const auto found = value.find(key); found != value.end())
      if (std::string text = message_member(*found, depth + 1); !text.empty()) return text;
  return {};
}

// Behind the last `"message":` (or 'message':) of a text that is no JSON as a whole; escapes of any depth are taken off.
[[nodiscard]] inline std::string quoted_message(const std::string& text) {
  for (const std::string_view name : {std::string_view("message"), std::string_view("detail")}) {
    const std::size_t at = text.rfind(name);
    if (at == std::string::npos || at == 0) continue;
    std::size_t i = at + name.size();
    const auto quote = [&](std::size_t place) {
      return place < text.size() && (text[place] == '"' || text[place] == '\'');
    };
    const auto skip = [&](char c) {
      while (i < text.size() && text[i] == c) ++i;
    };
    if (!quote(at - 1)) continue;
    skip('\\');
    if (!quote(i)) continue;
    ++i;
    skip(' ');
    if (i >= text.size() || text[i] != ':') continue;
    ++i;
    skip(' ');
    const std::size_t before = i;
    skip('\\');
    const std::size_t backslashes = i - before;  // of the quote that ends it, too
    if (!quote(i)) continue;
    const char end = text[i++];
    std::string out;
    for (; i < text.size(); ++i) {
      std::size_t run = 0;
      while (i + run < text.size() && text[i + run] == '\\') ++run;
      if (i + run < text.size() && text[i + run] == end && run <= backslashes) return out;
      if (run > 0) {
        // An escaped quote inside, or a line end.
        i += run;
        if (i >= text.size()) break;
        out += text[i] == 'n' ? '\n' : text[i];
        continue;
      }
      out += text[i];
    }
    return out;
  }
  return {};
}

}  // namespace detail

// `body` itself where it holds no message.
[[nodiscard]] inline std::string reply_message(const std::string& body) {
  std::string text = body;
  for (int level = 0; level < 8; ++level) {
    const std::size_t begin = text.find('{'), end = text.rfind('}');
    if (begin == std::string::npos || end == std::string::npos || end < begin) break;
    auto [json, problem] = core::read_json<nlohmann::ordered_json>(text.substr(begin, end - begin + 1));
    std::string inner = problem.text.empty() ? detail::message_member(json) : detail::quoted_message(text);
    if (inner.empty() || inner == text) break;
    text = std::move(inner);
  }
  return text;
}

}  // namespace rlalgo::http
