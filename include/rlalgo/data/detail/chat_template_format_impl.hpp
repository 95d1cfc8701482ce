// Definitions of chat_template_format.hpp.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/chat_template_format.hpp>
#include <rlalgo/data/preference_row.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::string without_trailing_space(std::string text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n\f\v");
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text;
}

RLALGO_INLINE void odds_row(Json& row, const Render& render, const std::string& where) {
  const std::string system = optional_text(row, "system", where);
  const Json* chosen = present(row, "chosen");
  const Json* rejected = present(row, "rejected");
  if (chosen == nullptr || !chosen->is_array()) raise_field(row, "chosen", "a list of messages", where);
  if (rejected == nullptr || !rejected->is_array() || rejected->empty())
    raise_field(row, "rejected", "a list of messages", where);
  if (chosen->empty() || chosen->size() % 2 != 0)
    core::raise("data", 21,
                {.what = "invalid number of turns in \"chosen\"",
                 .found = std::to_string(chosen->size()),
                 .expected = "user and assistant in turn, an even number",
                 .where = where});
  // The prompt of one exchange; the turns of more speak for themselves.
  const std::string prompt_column = chosen->size() == 2 ? optional_text(row, "prompt", where) : "";
  Json history = Json::array();
  if (!system.empty()) history.push_back(message("system", system));
  for (std::size_t i = 0; i < chosen->size(); i += 2) {
    history.push_back(message("user", prompt_column.empty() ? turn_text(row, "chosen", i, where) : prompt_column));
    if (i + 2 < chosen->size()) history.push_back(message("assistant", turn_text(row, "chosen", i + 1, where)));
  }
  std::string prompt = render(history, true);
  const auto answer = [&](const std::string& field) {
    Json whole = history;
    whole.push_back(message("assistant", turn_text(row, field, row[field].size() - 1, where)));
    const std::string text = render(whole, false);
    return text.substr(std::min(prompt.size(), text.size()));
  };
  std::string win = answer("chosen"), lose = answer("rejected");
  row["prompt"] = std::move(prompt);
  row["chosen"] = std::move(win);
  row["rejected"] = std::move(lose);
}

RLALGO_INLINE void TemplateFormat::whole_conversations(Json& row, const std::string& where) const {
  const Json* chosen = present(row, fields_.chosen);
  const Json* rejected = present(row, fields_.rejected);
  for (const auto& [cell, field] : {std::pair(chosen, fields_.chosen), std::pair(rejected, fields_.rejected)})
    if (cell == nullptr || !cell->is_array() || cell->empty())
      raise_field(row, field, "a list of messages, the answer last", where);
  Json history = Json::array();
  for (std::size_t i = 0; i + 1 < chosen->size(); ++i) history.push_back(normalised((*chosen)[i], row, where));
  finish(row, history, normalised(chosen->back(), row, where), normalised(rejected->back(), row, where));
}

RLALGO_INLINE void TemplateFormat::history_and_answers(Json& row, const std::string& where) const {
  const Json* messages = present(row, fields_.messages);
  Json history = Json::array();
  if (messages != nullptr && messages->is_string())
    history.push_back(normalised(Json{{fields_.role, "user"}, {fields_.content, *messages}}, row, where));
  else if (messages != nullptr && messages->is_array() && !messages->empty())
    for (const Json& m : *messages) history.push_back(normalised(m, row, where));
  else
    raise_field(row, fields_.messages, "a text or a list of messages", where);
  Json chosen = answer(row, fields_.chosen, where), rejected = answer(row, fields_.rejected, where);
  row.erase(fields_.messages);
  finish(row, history, chosen, rejected);
}

RLALGO_INLINE Json TemplateFormat::normalised(const Json& message, const Json& row, const std::string& where) const {
  if (!message.is_object() || !message.contains(fields_.role) || !message[fields_.role].is_string() ||
      !message.contains(fields_.content) || !message[fields_.content].is_string())
    raise_field(row, fields_.messages, "messages with the texts " + fields_.role + " and " + fields_.content, where);
  const std::string written = message[fields_.role].get<std::string>();
  const auto role = fields_.roles.find(written);
  if (role == fields_.roles.end()) {
    std::string all;
    for (const auto& [source, target] : fields_.roles) all += (all.empty() ? "" : ", ") + source;
    core::raise("data", 22,
                {.what = "a message has an unknown role",
                 .found = "'" + written + "'",
                 .expected = all,
                 .where = where,
                 .remedy = "list it under datasets[].roles, for example roles: {user: [" + written + "]}"});
  }
  return {{"role", role->second}, {"content", message[fields_.content]}};
}

RLALGO_INLINE Json TemplateFormat::answer(const Json& row, const std::string& field, const std::string& where) const {
  const Json* cell = present(row, field);
  if (cell != nullptr && cell->is_string())
    return normalised(Json{{fields_.role, "assistant"}, {fields_.content, *cell}}, row, where);
  if (cell != nullptr && cell->is_object()) return normalised(*cell, row, where);
  if (cell != nullptr && cell->is_array() && !cell->empty()) return normalised(cell->back(), row, where);
  raise_field(row, field, "a text, a message or a list of messages", where);
}

RLALGO_INLINE void TemplateFormat::finish(Json& row, const Json& history, const Json& chosen,
                                          const Json& rejected) const {
  std::string prompt = render_(history, true);
  std::string win = rendered(chosen), lose = rendered(rejected);
  if (fields_.chosen != "chosen") row.erase(fields_.chosen);
  if (fields_.rejected != "rejected") row.erase(fields_.rejected);
  row["prompt"] = std::move(prompt);
  row["chosen"] = std::move(win);
  row["rejected"] = std::move(lose);
}

RLALGO_INLINE std::string TemplateFormat::rendered(const Json& message) const {
  const Json dummy{{"role", "user"}, {"content", dummy_text}};
  const std::string whole = render_(Json::array({dummy, message}), false);
  const std::string sentinel = "[[sentinel-7d1f]]";
  Json marked = message;
  marked["content"] = sentinel;
  const std::string with_sentinel = render_(Json::array({dummy, marked}), false);
  if (const std::size_t at = with_sentinel.rfind(sentinel);
      at != std::string::npos && whole.compare(0, at, with_sentinel, 0, at) == 0)
    return without_trailing_space(whole.substr(at));
  // A template that rewrites content (drops a thinking block …).
  const std::string& content = message["content"].get_ref<const std::string&>();
  const std::size_t after = whole.find(dummy_text);
  if (after != std::string::npos && !content.empty())
    if (const std::size_t at = whole.find(content, after + std::string(dummy_text).size()); at != std::string::npos)
      return without_trailing_space(whole.substr(at));
  const std::string opening = render_(Json::array({dummy}), true);
  std::size_t common = 0;
  while (common < std::min(whole.size(), opening.size()) && whole[common] == opening[common]) ++common;
  return without_trailing_space(whole.substr(common));
}

}  // namespace detail

RLALGO_INLINE RowTransform chat_template_format(const std::string& name, PreferenceFamily family,
                                                const MessageFields& fields, const Render& render) {
  if (family == PreferenceFamily::odds && name == "chat_template.argilla")
    return [render](Json& row, const std::string& at) { detail::odds_row(row, render, at); };
  if (family == PreferenceFamily::unpaired) return {};
  const detail::TemplateFormat format(fields, render);
  if (name == "chat_template.default" && family == PreferenceFamily::pairs)
    return [format](Json& row, const std::string& at) { format.history_and_answers(row, at); };
  if (name == "chat_template.argilla_chat" || name == "chat_template.argilla")
    return [format](Json& row, const std::string& at) { format.whole_conversations(row, at); };
  return {};
}

}  // namespace rlalgo::data
