// Definitions of matching_transform.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/matching_transform.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::string strip(std::string_view text) {
  constexpr std::string_view space = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

[[noreturn]] RLALGO_INLINE void raise_column(const std::string& what, const std::string& found,
                                             const std::string& expected, const std::string& where) {
  core::raise("data", 10, {.what = what, .found = found, .expected = expected, .where = where});
}

RLALGO_INLINE std::string text_of(const Json& row, const std::string& column, const std::string& where) {
  const auto cell = row.find(column);
  if (cell == row.end() || !cell->is_string())
    raise_column("the row lacks the text \"" + column + "\"", cell == row.end() ? "no such column" : excerpt(*cell),
                 "a text", where);
  return cell->get<std::string>();
}

RLALGO_INLINE std::string content_of(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : std::string();
}

// The content of an answer that is a ground truth.
RLALGO_INLINE std::string truth_of(const Json& message, const std::string& where) {
  require_content_alone(message, where, {"tool_calls"});
  return content_of(message);
}

// Places of the assistant's messages.
RLALGO_INLINE std::vector<std::size_t> answers_of(const Json& messages) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (messages[i]["role"] == "assistant") out.push_back(i);
  return out;
}

RLALGO_INLINE Json before(const Json& messages, std::size_t end) {
  Json out = Json::array();
  for (std::size_t i = 0; i < end; ++i) out.push_back(messages[i]);
  return out;
}

// "a <open>b</close> c" → "a c": the text without its thoughts and the space behind them, trimmed.
RLALGO_INLINE std::string without_thoughts(std::string text) {
  constexpr std::string_view open = "<think>", close = "</think>";
  for (std::size_t begin = text.find(open); begin != std::string::npos; begin = text.find(open, begin)) {
    const std::size_t end = text.find(close, begin);
    if (end == std::string::npos) break;
    std::size_t behind = end + close.size();
    while (behind < text.size() && std::string_view(" \t\r\n\f\v").find(text[behind]) != std::string_view::npos)
      ++behind;
    text.erase(begin, behind - begin);
  }
  return strip(text);
}

// The message with a reasoning_content; what an answer thinks in its content is taken apart.
RLALGO_INLINE Json split_thinking(const Json& message) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> marks = {
      {{"<think>", "</think>"}, {"<reasoning>", "</reasoning>"}, {"<|begin_of_thought|>", "<|end_of_thought|>"}}};
  const auto given = message.find("reasoning_content");
  std::string thought = given != message.end() && given->is_string() ? given->get<std::string>() : std::string();
  std::string content = content_of(message);
  if (message["role"] == "assistant" && thought.empty())
    for (const auto& [open, close] : marks) {
      const std::size_t begin = content.find(open), end = content.find(close);
      if (begin == std::string::npos || end == std::string::npos) continue;
      const std::size_t first = begin + open.size();
      thought = end > first ? strip(std::string_view(content).substr(first, end - first)) : std::string();
      content = strip(std::string_view(content).substr(end + close.size()));
      break;
    }
  Json out = message;
  out["content"] = content;
  out["reasoning_content"] = thought;
  return out;
}

RLALGO_INLINE Json matching_row(Json prompt, std::string truth) {
  return {{"prompt", std::move(prompt)}, {"ground_truth", std::move(truth)}};
}

}  // namespace detail

RLALGO_INLINE Json messages_of(const Json& row, const std::string& where) {
  for (const char* column : {"messages", "conversations"}) {
    const auto cell = row.find(column);
    if (cell == row.end() || cell->is_null()) continue;
    if (!cell->is_array())
      detail::raise_column(std::string("the column \"") + column + "\" is no list of messages", detail::excerpt(*cell),
                           "[{\"role\": …, \"content\": …}, …]", where);
    if (cell->empty()) continue;
    for (const Json& message : *cell)
      if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
        detail::raise_column(std::string("a message of \"") + column + "\" has no role", detail::excerpt(message),
                             "{\"role\": …, \"content\": …}", where);
    return *cell;
  }
  return Json::array();
}

RLALGO_INLINE const std::vector<std::string>& matching_transform_names() {
  static const std::vector<std::string> names = {"ebft_opencode.transform",
                                                 "ebft_chat_multiturn.transform",
                                                 "ebft_chat_multiturn.transform_last_turn",
                                                 "ebft_chat_multiturn.transform_all_turns",
                                                 "ebft_reasoning.transform",
                                                 "ebft_reasoning.transform_answer_only",
                                                 "ebft_reasoning.transform_split_thinking"};
  return names;
}

RLALGO_INLINE std::vector<Json> matching_rows(const std::string& name, const Json& row, const std::string& where) {
  using namespace detail;
  if (name == "ebft_opencode.transform")
    return {matching_row(Json::array({Json{{"role", "user"}, {"content", text_of(row, "input", where)}}}),
                         text_of(row, "output", where))};
  Json messages = messages_of(row, where);
  const std::vector<std::size_t> answers = answers_of(messages);
  if (name.starts_with("ebft_chat_multiturn")) {
    if (name.ends_with("_all_turns")) {
      std::vector<Json> out;
      for (const std::size_t i : answers)
        out.push_back(matching_row(before(messages, i), truth_of(messages[i], where)));
      return out;
    }
    if (name.ends_with("_last_turn")) {
      if (answers.empty()) return {matching_row(Json::array(), "")};
      return {matching_row(before(messages, answers.back()), truth_of(messages[answers.back()], where))};
    }
    if (answers.empty()) return {matching_row(messages, "")};
    Json out = matching_row(before(messages, answers.front()), truth_of(messages[answers.front()], where));
    out["remaining_turns"] = Json::array();
    for (std::size_t i = answers.front() + 1; i < messages.size(); ++i) out["remaining_turns"].push_back(messages[i]);
    return {out};
  }
  const bool split = name.ends_with("_split_thinking");
  if (split)
    for (Json& message : messages) message = split_thinking(message);
  if (answers.empty()) return {matching_row(before(messages, messages.empty() ? 0 : messages.size() - 1), "")};
  const Json& last = messages[answers.back()];
  std::string truth = truth_of(last, where);
  if (name.ends_with("_answer_only")) truth = without_thoughts(truth);
  if (split && !last["reasoning_content"].get_ref<const std::string&>().empty())
    truth = "<think>\n" + last["reasoning_content"].get<std::string>() + "\n</think>\n\n" + truth;
  return {matching_row(before(messages, answers.back()), truth)};
}

RLALGO_INLINE Table matching_table(const std::string& name, const Table& table) {
  Table out;
  for (std::size_t i = 0; i < table.size(); ++i)
    for (Json& row : matching_rows(name, table.row(i), table.where(i))) {
      for (const char* column : {"tools", "chat_template_kwargs", "environment"})
        if (const auto cell = table.row(i).find(column); cell != table.row(i).end() && !cell->is_null())
          row[column] = *cell;
      out.append(std::move(row), table.origin(i));
    }
  return out;
}

}  // namespace rlalgo::data
