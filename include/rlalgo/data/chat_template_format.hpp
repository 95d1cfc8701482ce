// Preference data through the model's own chat template: chat_template.default, .argilla_chat and ORPO's .argilla.
//
//   prompt = template(history, generation prompt)
//   default, argilla_chat: answer = what the template prints for the assistant's turn from its content on, without
//                          trailing white space
//   argilla (ORPO):        answer = template(history + answer) without its first len(prompt) characters
//
// Source: the prompt strategies of axolotl. Columns and roles are named by the entry's field_messages, field_chosen,
// field_rejected, message_property_mappings (target: source), roles (target: [sources]), field_tools, field_thinking.
//
// Messages keep their other fields (tool_calls, reasoning_content, name …), and the row's tools and
// chat_template_kwargs are rendered with them and then dropped from the row. Where an answer has more than content, or
// several messages that its list begins with the assistant's, prompt and answers are split as TRL's apply_chat_template
// splits them: the prompt is what template(history, generation prompt) and template(history + answer) begin alike.
// Errors: those of preference_row.hpp; [rlalgo.data.21] an odd number of turns for argilla; [rlalgo.data.22] a role
// that `roles` does not list; those of template_columns.hpp.
// Departure: axolotl renders role and content alone, and of an answer the last message alone. It finds the answer by
// searching its text in the rendered turn, which fails when the template trims it, or when it occurs earlier. Here the
// place of the content is found with a sentinel in its stead. With a `prompt` column, argilla puts it in the place of
// every user's turn of several; here the turns are taken as they are.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <rlalgo/data/preference_row.hpp>

namespace rlalgo::data {

struct MessageFields {
  std::string messages = "messages", chosen = "chosen", rejected = "rejected";
  std::string role = "role", content = "content", tools = "tools";
  std::map<std::string, std::string> properties = {};  // further message_property_mappings, target → source
  std::map<std::string, std::string> roles = {         // as written → as the template knows it
      {"user", "user"},
      {"assistant", "assistant"},
      {"system", "system"},
      {"tool", "tool"}};
};

namespace detail {

inline constexpr const char* dummy_text = "[[dummy_message]]";

std::string without_trailing_space(std::string text);

class TemplateFormat {
 public:
  TemplateFormat(MessageFields fields, Render render) : fields_(std::move(fields)), render_(std::move(render)) {}

  void whole_conversations(Json& row, const std::string& where) const;

  void history_and_answers(Json& row, const std::string& where) const;

 private:
  [[nodiscard]] Json normalised(const Json& message, const Json& row, const std::string& where) const;

  [[nodiscard]] Json normalised_list(const Json& messages, const Json& row, const std::string& where) const;

  // The messages of an answer: of a list those behind the history, all where it begins with the assistant's, else the
  // last.
  [[nodiscard]] Json answer(const Json& row, const std::string& field, const Json& history,
                            const std::string& where) const;

  // `chosen`, `rejected`: lists of messages.
  void finish(Json& row, const Json& history, const Json& chosen, const Json& rejected, const std::string& where) const;

  // What the template prints for an assistant's turn from its content on.
  [[nodiscard]] std::string rendered(const Json& message, const TemplateColumns& columns) const;

  MessageFields fields_;
  Render render_;
};

void odds_row(Json& row, const Render& render, const std::string& tools, const std::string& where);

}  // namespace detail

// The format `name` of a family; empty when there is none of that name.
[[nodiscard]] RowTransform chat_template_format(const std::string& name, PreferenceFamily family,
                                                const MessageFields& fields, const Render& render);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/chat_template_format_impl.hpp>
#endif
