// What a prompt is: a string, or a non-empty list of {role, content} messages; and the step from rows to prompts.
//
// A string is fed to the tokenizer as it is. Messages are rendered by the chat template; a content is a text or a list of
// parts that are texts, and an assistant's message may have none. Every other column of the row,
// except `completion` and `completion_ids`, goes to the reward functions.
//
// Errors: [rlalgo.data.10] a row has no prompt; [rlalgo.data.11] the prompt is neither form, naming row, message and
// field.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

namespace detail {

inline std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "…";
  return text;
}

[[noreturn]] inline void raise_prompt(const std::string& what, const std::string& found, const std::string& expected,
                                      const std::string& where) {
  core::raise("data", 11, {.what = what, .found = found, .expected = expected, .where = where});
}

// [{"type": "text", "text": …}, …]
inline bool is_text_parts(const Json& content) {
  if (!content.is_array() || content.empty()) return false;
  for (const Json& part : content)
    if (!part.is_object() || !part.contains("type") || part["type"] != "text" || !part.contains("text") ||
        !part["text"].is_string())
      return false;
  return true;
}

}  // namespace detail

// Raises unless `prompt` is one of the two forms. `where` names the row.
inline void check_prompt(const Json& prompt, const std::string& where) {
  if (prompt.is_string()) {
    if (prompt.get_ref<const std::string&>().empty())
      detail::raise_prompt("the prompt is empty", "\"\"", "a text", where);
    return;
  }
  if (!prompt.is_array())
    detail::raise_prompt("the prompt is neither a text nor a list of messages", detail::excerpt(prompt),
                         "a string, or [{\"role\": …, \"content\": …}, …]", where);
  if (prompt.empty()) detail::raise_prompt("the prompt has no messages", "[]", "at least one message", where);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const Json& message = prompt[i];
    const std::string which = "message " + std::to_string(i) + " of the prompt";
    if (!message.is_object())
      detail::raise_prompt(which + " is not an object", detail::excerpt(message), "{\"role\": …, \"content\": …}",
                           where);
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
      detail::raise_prompt(which + " has no role", role == message.end() ? "no such field" : detail::excerpt(*role),
                           "a role such as \"user\"", where);
    const auto content = message.find("content");
    if (content != message.end() && (content->is_string() || detail::is_text_parts(*content))) continue;
    if (*role == "assistant" && (content == message.end() || content->is_null())) continue;
    detail::raise_prompt("the content of " + which + " is not a text",
                         content == message.end() ? "no such field" : detail::excerpt(*content), "a string", where);
  }
}

// What stands for the prompt of a row that has none: an empty message of the user, which an environment fills at its reset.
[[nodiscard]] inline Json empty_prompt() { return Json::array({{{"role", "user"}, {"content", ""}}}); }

// The rows of a transformed table as prompts, in order; `ids` are still empty. `optional`: a row may have none (missing or null).
[[nodiscard]] inline std::vector<TokenizedPrompt> prompts_of(const Table& table, bool optional = false) {
  std::vector<TokenizedPrompt> out;
  out.reserve(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Json& row = table.row(i);
    const auto prompt = row.find("prompt");
    const bool has_prompt = prompt != row.end() && !prompt->is_null();
    if (!has_prompt && !optional) {
      std::string columns;
      for (const auto& [name, value] : row.items()) columns += (columns.empty() ? "" : ", ") + name;
      core::raise("data", 10,
                  {.what = "the row has no prompt",
                   .found = "columns " + columns,
                   .expected = "a column \"prompt\"",
                   .where = table.where(i),
                   .remedy = "name the columns: datasets: [{type: {field_prompt: question, field_answer: answer}}]"});
    }
    if (has_prompt) check_prompt(*prompt, table.where(i));
    TokenizedPrompt item;
    item.row = static_cast<std::int64_t>(i);
    item.prompt = has_prompt ? *prompt : empty_prompt();
    item.has_prompt = has_prompt;
    item.columns = Json::object();
    for (const auto& [name, value] : row.items())
      if (name != "prompt" && name != "completion" && name != "completion_ids") item.columns[name] = value;
    out.push_back(std::move(item));
  }
  return out;
}

}  // namespace rlalgo::data
