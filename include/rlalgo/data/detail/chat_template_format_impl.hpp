// Definitions of chat_template_format.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/chat_template_format.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/template_columns.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::string without_trailing_space(std::string text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n\f\v");
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text;
}

// A message without its other fields renders otherwise: prompt and answer are then split where they begin alike.
RLALGO_INLINE bool has_more_than_content(const Json& message) {
  for (const auto& [name, value] : message.items())
    if (name != "role" && name != "content" && !value.is_null()) return true;
  return !message.contains("content");
}

RLALGO_INLINE bool fields_are_rendered(const Json& history, const Json& message, const Render& render,
                                       const TemplateColumns& columns) {
  if (!has_more_than_content(message)) return false;
  if (!message.contains("content")) return true;
  Json with = history, without = history;
  with.push_back(message);
  without.push_back({{"role", message["role"]}, {"content", message["content"]}});
  return render(with, false, columns) != render(without, false, columns);
}

// Prompt and answers as TRL splits them.
RLALGO_INLINE void split_as_trl(Json& row, const Json& history, const Json& chosen, const Json& rejected,
                                const Render& render, const TemplateColumns& columns) {
  const auto whole = [&](const Json& answer) {
    Json messages = history;
    for (const Json& m : answer) messages.push_back(m);
    return render(messages, false, columns);
  };
  std::string prompt = render(history, true, columns);
  std::string win = whole(chosen), lose = whole(rejected);
  for (const std::string* text : {&win, &lose}) {
    std::size_t n = 0;
    while (n < std::min(prompt.size(), text->size()) && prompt[n] == (*text)[n]) ++n;
    while (n > 0 && n < prompt.size() && (static_cast<unsigned char>(prompt[n]) & 0xC0U) == 0x80U) --n;
    prompt.resize(n);  // not inside a character
  }
  win.erase(0, prompt.size());
  lose.erase(0, prompt.size());
  row["prompt"] = std::move(prompt);
  row["chosen"] = without_trailing_space(std::move(win));
  row["rejected"] = without_trailing_space(std::move(lose));
}

// Columns that are rendered here are not for anybody after.
RLALGO_INLINE TemplateColumns take_template_columns(Json& row, const std::string& tools, const std::string& where) {
  TemplateColumns out = template_columns(row, where, tools);
  row.erase(tools);
  row.erase("chat_template_kwargs");
  if (out.tools.empty()) out.tools = nullptr;
  return out;
}

// Message `index` of a column with the role of its place, unless it has one that templates know.
RLALGO_INLINE Json turn_of(const Json& row, const std::string& field, std::size_t index, const std::string& role,
                           const std::string& where) {
  const Json& list = row[field];
  if (!list[index].is_object() || !has_more_than_content(list[index])) {
    return message(role, turn_text(row, field, index, where));
  }
  Json out = list[index];
  const Json* content = present(out, "content");
  if (content != nullptr && !content->is_string()) raise_field(row, field, "messages with a text as content", where);
  const Json* given = present(out, "role");
  const bool known = given != nullptr && given->is_string() &&
                     (*given == "user" || *given == "assistant" || *given == "system" || *given == "tool");
  if (!known) out["role"] = role;
  return out;
}

RLALGO_INLINE void odds_row(Json& row, const Render& render, const std::string& tools, const std::string& where) {
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
    history.push_back(turn_of(row, "chosen", i, "user", where));
    if (!prompt_column.empty()) history.back()["content"] = prompt_column;
    if (i + 2 < chosen->size()) history.push_back(turn_of(row, "chosen", i + 1, "assistant", where));
  }
  const Json win_turn = turn_of(row, "chosen", chosen->size() - 1, "assistant", where),
             lose_turn = turn_of(row, "rejected", rejected->size() - 1, "assistant", where);
  const TemplateColumns columns = take_template_columns(row, tools, where);
  if (fields_are_rendered(history, win_turn, render, columns) ||
      fields_are_rendered(history, lose_turn, render, columns))
    return split_as_trl(row, history, Json::array({win_turn}), Json::array({lose_turn}), render, columns);
  std::string prompt = render(history, true, columns);
  const auto answer = [&](const Json& turn) {
    Json whole = history;
    whole.push_back(turn);
    const std::string text = render(whole, false, columns);
    return text.substr(std::min(prompt.size(), text.size()));
  };
  std::string win = answer(win_turn), lose = answer(lose_turn);
  row["prompt"] = std::move(prompt);
  row["chosen"] = std::move(win);
  row["rejected"] = std::move(lose);
}

RLALGO_INLINE void TemplateFormat::whole_conversations(Json& row, const std::string& where) const {
  for (const std::string& field : {fields_.chosen, fields_.rejected})
    if (const Json* cell = present(row, field); cell == nullptr || !cell->is_array() || cell->empty())
      raise_field(row, field, "a list of messages, the answer last", where);
  const Json chosen = normalised_list(row[fields_.chosen], row, where),
             rejected = normalised_list(row[fields_.rejected], row, where);
  std::size_t n = chosen.size() - 1;
  const auto part = [](const Json& list, std::size_t from, std::size_t to) {
    Json out = Json::array();
    for (std::size_t i = from; i < to; ++i) out.push_back(list[i]);
    return out;
  };
  if (rejected.size() == chosen.size())
    return finish(row, part(chosen, 0, n), part(chosen, n, n + 1), part(rejected, n, n + 1), where);
  // Answers of several messages: what both begin with is the history.
  n = 0;
  while (n + 1 < std::min(chosen.size(), rejected.size()) && chosen[n] == rejected[n]) ++n;
  if (n == 0)
    return finish(row, part(chosen, 0, chosen.size() - 1), Json::array({chosen.back()}), Json::array({rejected.back()}),
                  where);
  finish(row, part(chosen, 0, n), part(chosen, n, chosen.size()), part(rejected, n, rejected.size()), where);
}

RLALGO_INLINE void TemplateFormat::history_and_answers(Json& row, const std::string& where) const {
  const Json* messages = present(row, fields_.messages);
  Json history = Json::array();
  if (messages != nullptr && messages->is_string())
    history.push_back(normalised(Json{{fields_.role, "user"}, {fields_.content, *messages}}, row, where));
  else if (messages != nullptr && messages->is_array() && !messages->empty())
    history = normalised_list(*messages, row, where);
  else
    raise_field(row, fields_.messages, "a text or a list of messages", where);
  Json chosen = answer(row, fields_.chosen, history, where), rejected = answer(row, fields_.rejected, history, where);
  row.erase(fields_.messages);
  finish(row, history, chosen, rejected, where);
}

RLALGO_INLINE Json TemplateFormat::normalised_list(const Json& messages, const Json& row,
                                                   const std::string& where) const {
  Json out = Json::array();
  for (const Json& m : messages) out.push_back(normalised(m, row, where));
  return out;
}

RLALGO_INLINE Json TemplateFormat::normalised(const Json& message, const Json& row, const std::string& where) const {
  const auto text = [&](const std::string& field) {
    const Json* cell = present(message, field);
    return cell != nullptr && cell->is_string();
  };
  const bool calls = message.is_object() && present(message, fields_.content) == nullptr && message.size() > 2;
  if (!message.is_object() || !text(fields_.role) || !(text(fields_.content) || calls))
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
  Json out = {{"role", role->second}};
  if (text(fields_.content)) out["content"] = message[fields_.content];
  for (const auto& [target, source] : fields_.properties)
    if (const Json* cell = present(message, source); cell != nullptr) out[target] = *cell;
  for (const auto& [name, value] : message.items()) {
    bool read = value.is_null() || name == fields_.role || name == fields_.content || out.contains(name);
    for (const auto& [target, source] : fields_.properties) read = read || name == source;
    if (!read) out[name] = value;
  }
  return out;
}

RLALGO_INLINE Json TemplateFormat::answer(const Json& row, const std::string& field, const Json& history,
                                          const std::string& where) const {
  const Json* cell = present(row, field);
  if (cell != nullptr && cell->is_string())
    return Json::array({normalised(Json{{fields_.role, "assistant"}, {fields_.content, *cell}}, row, where)});
  if (cell != nullptr && cell->is_object()) return Json::array({normalised(*cell, row, where)});
  if (cell == nullptr || !cell->is_array() || cell->empty())
    raise_field(row, field, "a text, a message or a list of messages", where);
  const Json list = normalised_list(*cell, row, where);
  std::size_t first = list.size() - 1;
  if (list.front()["role"] == "assistant") {
    first = 0;
  } else if (list.size() > history.size()) {
    std::size_t n = 0;
    while (n < history.size() && list[n] == history[n]) ++n;
    if (n == history.size()) first = n;
  }
  Json out = Json::array();
  for (std::size_t i = first; i < list.size(); ++i) out.push_back(list[i]);
  return out;
}

RLALGO_INLINE void TemplateFormat::finish(Json& row, const Json& history, const Json& chosen, const Json& rejected,
                                          const std::string& where) const {
  const TemplateColumns columns = take_template_columns(row, fields_.tools, where);
  if (fields_.chosen != "chosen") row.erase(fields_.chosen);
  if (fields_.rejected != "rejected") row.erase(fields_.rejected);
  if (chosen.size() > 1 || rejected.size() > 1 || fields_are_rendered(history, chosen[0], render_, columns) ||
      fields_are_rendered(history, rejected[0], render_, columns))
    return split_as_trl(row, history, chosen, rejected, render_, columns);
  std::string prompt = render_(history, true, columns);
  std::string win = rendered(chosen[0], columns), lose = rendered(rejected[0], columns);
  row["prompt"] = std::move(prompt);
  row["chosen"] = std::move(win);
  row["rejected"] = std::move(lose);
}

RLALGO_INLINE std::string TemplateFormat::rendered(const Json& message, const TemplateColumns& columns) const {
  const Json dummy{{"role", "user"}, {"content", dummy_text}};
  const std::string whole = render_(Json::array({dummy, message}), false, columns);
  const std::string sentinel = "[[sentinel-7d1f]]";
  Json marked = message;
  marked["content"] = sentinel;
  const std::string with_sentinel = render_(Json::array({dummy, marked}), false, columns);
  if (const std::size_t at = with_sentinel.rfind(sentinel);
      at != std::string::npos && whole.compare(0, at, with_sentinel, 0, at) == 0)
    return without_trailing_space(whole.substr(at));
  // A template that rewrites content (drops a thinking block …).
  const std::string& content = message["content"].get_ref<const std::string&>();
  const std::size_t after = whole.find(dummy_text);
  if (after != std::string::npos && !content.empty())
    if (const std::size_t at = whole.find(content, after + std::string(dummy_text).size()); at != std::string::npos)
      return without_trailing_space(whole.substr(at));
  const std::string opening = render_(Json::array({dummy}), true, columns);
  std::size_t common = 0;
  while (common < std::min(whole.size(), opening.size()) && whole[common] == opening[common]) ++common;
  return without_trailing_space(whole.substr(common));
}

}  // namespace detail

RLALGO_INLINE RowTransform chat_template_format(const std::string& name, PreferenceFamily family,
                                                const MessageFields& fields, const Render& render) {
  if (family == PreferenceFamily::odds && name == "chat_template.argilla")
    return
        [render, tools = fields.tools](Json& row, const std::string& at) { detail::odds_row(row, render, tools, at); };
  if (family == PreferenceFamily::unpaired) return {};
  const detail::TemplateFormat format(fields, render);
  if (name == "chat_template.default" && family == PreferenceFamily::pairs)
    return [format](Json& row, const std::string& at) { format.history_and_answers(row, at); };
  if (name == "chat_template.argilla_chat" || name == "chat_template.argilla")
    return [format](Json& row, const std::string& at) { format.whole_conversations(row, at); };
  return {};
}

}  // namespace rlalgo::data
