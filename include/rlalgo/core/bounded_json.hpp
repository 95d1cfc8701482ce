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

// What the library's message says, in our words; it has numbers, positions and names of its own types.
[[nodiscard]] inline std::string json_reason(std::string_view what) {
  const auto has = [&](std::string_view part) { return what.find(part) != std::string_view::npos; };
  const auto between = [&](std::string_view begin, std::string_view end) {
    const std::size_t at = what.find(begin);
    if (at == std::string_view::npos) return std::string();
    const std::string_view rest = what.substr(at + begin.size());
    return std::string(rest.substr(0, rest.find(end)));
  };
  if (!has("[json.exception.") && !has("parse error") && !has("syntax error")) return std::string(what);
  if (has("must be ") && has("but is "))
    return between("but is ", "\n") + " where " + between("must be ", ",") + " is expected";
  if (has("number overflow")) return "a number that no double holds: '" + between("parsing '", "'") + "'";
  if (has("key '")) return "no entry '" + between("key '", "'") + "'";
  if (has("array index")) return "no entry " + between("array index ", " ") + " in a list";
  if (has("unexpected end of input")) return "the text ends before the value does";
  const std::string read = between("last read: '", "';"),
                    seen = read.substr(
                        0, read.rfind('\'') == read.size() - 1 && !read.empty() ? read.size() - 1 : read.size());
  const std::string behind = seen.empty() ? std::string() : ", behind " + seen;
  if (has("missing closing quote")) return "a text without its closing quote" + behind;
  if (has("control character"))
    return "a control character in a text, which has to be an escape (\\n, \\u0000)" + behind;
  if (has("UTF-8")) return "bytes that are no UTF-8" + behind;
  if (has("surrogate")) return "half of a pair of \\u escapes" + behind;
  if (has("forbidden character after backslash") || has("must be followed by 4 hex"))
    return "an escape that JSON does not have" + behind;
  if (has("invalid number")) return "a number that is not complete" + behind;
  if (has("invalid literal")) return "a word that JSON does not have (texts stand in double quotes)" + behind;
  if (has("while parsing object key")) return "no text in double quotes where a name is expected" + behind;
  if (has("while parsing object separator")) return "no : behind a name" + behind;
  if (has("while parsing object")) return "no comma or } behind a member" + behind;
  if (has("while parsing array")) return "no comma or ] behind an item" + behind;
  if (has("expected end of input")) return "more text behind the value" + behind;
  return "no JSON value where one is expected" + behind;
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
    out.problem.text = json_reason(error.what());  // "… holds: '1e999'"
    const std::string_view reason = out.problem.text;
    if (const auto quote = reason.find('\''); quote != std::string_view::npos && reason.ends_with('\''))
      out.problem.byte = std::min(text.find(reason.substr(quote + 1, reason.size() - quote - 2)), text.size());
  }
  return out;
}

}  // namespace rlalgo::core
