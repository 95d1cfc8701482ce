// What the formats of preference data have in common: which family they serve, and how they read a row.
//
// A format turns a dataset row into `prompt`, `chosen`, `rejected` (pairs, odds) or `prompt`, `completion`, `label`
// (unpaired). It keeps the other columns. Absent, null and empty are the same for an optional column.
//
// Errors: [rlalgo.data.10] a column is missing or has the wrong type; [rlalgo.data.21] a list of messages is too short
// or has an invalid number of turns; [rlalgo.data.35] a message has calls or thoughts where its content alone is used.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/template_columns.hpp>
#include <rlalgo/data/transform.hpp>

namespace rlalgo::data {

// pairs: dpo, ipo, simpo, cpo; odds: orpo, whose strategies are its own; unpaired: kto.
enum class PreferenceFamily { pairs, odds, unpaired };

namespace detail {

inline const Json* present(const Json& row, const std::string& field) {
  const auto cell = row.find(field);
  return cell == row.end() || cell->is_null() ? nullptr : &*cell;
}

// "" when the column is absent, null or empty.
inline std::string optional_text(const Json& row, const std::string& field, const std::string& where) {
  const Json* cell = present(row, field);
  if (cell == nullptr) return {};
  if (!cell->is_string()) raise_field(row, field, "a text or null", where);
  return cell->get<std::string>();
}

// For a format that uses a message's content alone: it has nothing else to say.
inline void require_content_alone(const Json& message, const std::string& where,
                                  std::initializer_list<const char*> fields = {"tool_calls", "reasoning_content",
                                                                               "reasoning", "thinking"}) {
  for (const char* field : fields)
    if (const Json* value = present(message, field); value != nullptr && !value->empty() && *value != "")
      core::raise(
          "data", 35,
          {.what = "a message has " + std::string(field) + ", which this type does not show",
           .found = excerpt(*value),
           .expected = "messages of a role and a content",
           .where = where,
           .remedy = "choose a type that renders them with the chat template (no type, or chat_template.default)"});
}

// The text of message `index` of a list of messages.
inline const std::string& turn_text(const Json& row, const std::string& field, std::size_t index,
                                    const std::string& where) {
  const Json* cell = present(row, field);
  if (cell == nullptr || !cell->is_array()) raise_field(row, field, "a list of {role, content} messages", where);
  if (cell->size() <= index)
    core::raise("data", 21,
                {.what = "the column \"" + field + "\" has too few messages",
                 .found = std::to_string(cell->size()),
                 .expected = "at least " + std::to_string(index + 1),
                 .where = where});
  const Json& message = (*cell)[index];
  if (message.is_object()) require_content_alone(message, where);
  if (!message.is_object() || !message.contains("content") || !message["content"].is_string())
    raise_field(row, field, "messages with a text as content", where);
  return message["content"].get_ref<const std::string&>();
}

}  // namespace detail
}  // namespace rlalgo::data
