// JSON texts as values, within limits: copying, comparing and printing a value recurses once a level, and looking for a
// name goes through all members of an object. So a text of a stranger is measured before it becomes a value.
//
// Measuring costs two looks for brackets; only a text with more of them than levels are allowed, or large enough to
// hold an object of too many members, is walked through.
// `Json` is a nlohmann::basic_json; this header needs none of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::core {

struct JsonLimits {
  std::size_t depth = 200;      // levels of arrays and objects
  std::size_t members = 20000;  // of one object
};

struct JsonProblem {
  std::string text = {};      // empty: none
  std::size_t byte = 0;       // how far the text was read
  bool beyond_limit = false;  // valid JSON perhaps, but more than JsonLimits allows
};

template <class Json>
struct ReadJson {
  Json value = Json(Json::value_t::discarded);  // stays so where there is a problem
  JsonProblem problem;
};

namespace detail {

// Whether `text` holds more than `most` of these letters.
[[nodiscard]] inline bool holds_more(std::string_view text, std::string_view letters, std::size_t most) {
  std::size_t count = 0;
  for (const char letter : letters)
    for (std::size_t at = text.find(letter); at != std::string_view::npos; at = text.find(letter, at + 1))
      if (++count > most) return true;
  return false;
}

// Every member takes at least `"":0,`.
[[nodiscard]] inline bool may_exceed(std::string_view text, const JsonLimits& limits) {
  return holds_more(text, "[{", limits.depth) ||
         (text.size() / 5 >= limits.members && holds_more(text, ":", limits.members));
}

}  // namespace detail

// The part of the parser's message that says what is wrong, without its numbering and its position.
[[nodiscard]] inline std::string json_reason(std::string_view what) {
  if (const auto at = what.find("parse error"); at != std::string_view::npos) {
    if (const auto colon = what.find(": ", at); colon != std::string_view::npos) what.remove_prefix(colon + 2);
  } else if (const auto end = what.find("] "); what.starts_with("[json.exception.") && end != std::string_view::npos) {
    what.remove_prefix(end + 2);
  }
  return std::string(what);
}

// What of `text`, one or several JSON texts, is beyond the limits. Text that is not JSON may be found so or not.
[[nodiscard]] inline JsonProblem json_excess(std::string_view text, const JsonLimits& limits = {}) {
  if (!detail::may_exceed(text, limits)) return {};
  std::vector<std::size_t> members = {0};  // of every open level
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      members.push_back(0);
      if (members.size() > limits.depth + 1)
        return {"lists or objects nested more than " + std::to_string(limits.depth) + " levels deep", i, true};
    } else if ((c == ']' || c == '}') && members.size() > 1) {
      members.pop_back();
    } else if (c == ':' && ++members.back() > limits.members) {
      return {"an object of more than " + std::to_string(limits.members) + " members", i, true};
    }
  }
  return {};
}

// The value of a whole text. A number that no double holds (1e999) is a problem.
template <class Json>
[[nodiscard]] ReadJson<Json> read_json(std::string_view text, const JsonLimits& limits = {}) {
  ReadJson<Json> out;
  out.problem = json_excess(text, limits);
  if (!out.problem.text.empty()) return out;
  try {
    out.value = Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    out.problem = {.text = json_reason(error.what()), .byte = error.byte};
  } catch (const typename Json::exception& error) {
    out.problem.text = json_reason(error.what());  // "… parsing '1e999'"
    const std::string_view reason = out.problem.text;
    if (const auto quote = reason.find('\''); quote != std::string_view::npos && reason.ends_with('\''))
      out.problem.byte = std::min(text.find(reason.substr(quote + 1, reason.size() - quote - 2)), text.size());
  }
  return out;
}

}  // namespace rlalgo::core
