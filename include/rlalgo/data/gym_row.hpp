// A row of a NeMo Gym dataset, as something a model can be shown.
//
//   {"responses_create_params": {"input": text | [item, …], "instructions": text, "tools": [{…}, …], …},
//    "agent_ref": {"type": …, "name": …}, …what the environment wants to know}
//
// Items become messages: `developer` is `system` (templates know no other name for it), instructions come first, parts of
// a content are joined, function calls and their outputs are calls and results of tools. The row itself stays as it is.
//
// Errors: [rlalgo.data.31] the row has no input that can be shown, with the item.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/json_members.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

namespace detail {

[[noreturn]] inline void raise_gym_row(const std::string& what, const Json& found, const std::string& where) {
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 120) text = text.substr(0, 117) + "…";
  core::raise("data", 31,
              {.what = what,
               .found = text,
               .expected = "{\"responses_create_params\": {\"input\": [{\"role\": …, \"content\": …}, …]}, …}",
               .where = where,
               .remedy = "the rows of nemo_gym_datasets are those of NeMo Gym's own data folders"});
}

inline const std::string* text_member(const Json& value, const char* key) {
  const auto found = value.find(key);
  return found != value.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

inline std::string gym_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) raise_gym_row("the content of a message is no text", content, where);
  std::string out;
  for (const Json& part : content) {
    const std::string* text = part.is_object() ? text_member(part, "text") : nullptr;
    if (text == nullptr) raise_gym_row("a part of a message is no text", part, where);
    out += *text;
  }
  return out;
}

inline void append_gym_item(Json& messages, const Json& item, const std::string& where) {
  if (!item.is_object()) raise_gym_row("an item of the input is no object", item, where);
  const std::string* kind = text_member(item, "type");
  const std::string type = kind == nullptr ? "message" : *kind;
  if (type == "reasoning") return;
  if (type == "function_call") {
    const std::string* name = text_member(item, "name");
    const std::string* text = text_member(item, "arguments");
    if (name == nullptr || text == nullptr) raise_gym_row("a function call has no name or arguments", item, where);
    Json arguments = Json::parse(*text, nullptr, false);
    if (arguments.is_discarded()) arguments = *text;
    Json call = {{"type", "function"}, {"function", {{"name", *name}, {"arguments", std::move(arguments)}}}};
    if (!messages.empty() && messages.back().at("role") == "assistant" && messages.back().contains("tool_calls"))
      messages.back()["tool_calls"].push_back(std::move(call));
    else
      messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({std::move(call)})}});
    return;
  }
  if (type == "function_call_output") {
    const auto output = item.find("output");
    if (output == item.end()) raise_gym_row("a function call's output is missing", item, where);
    messages.push_back({{"role", "tool"}, {"content", gym_text(*output, where)}});
    return;
  }
  const std::string* role = text_member(item, "role");
  const auto content = item.find("content");
  if (type != "message" || role == nullptr || content == item.end())
    raise_gym_row("an item of the input is no message", item, where);
  const std::string shown = *role == "developer" ? "system" : *role;
  std::string text = gym_text(*content, where);
  if (shown == "system" && !messages.empty() && messages.back().at("role") == "system") {
    messages.back()["content"] = messages.back()["content"].get<std::string>() + "\n\n" + text;
    return;
  }
  messages.push_back({{"role", shown}, {"content", std::move(text)}});
}

}  // namespace detail

// What the model is shown before it speaks; `where` names the row.
[[nodiscard]] inline Json gym_messages(const Json& row, const std::string& where) {
  const auto params = row.find("responses_create_params");
  if (params == row.end() || !params->is_object())
    detail::raise_gym_row("a row has no responses_create_params", row, where);
  const auto input = params->find("input");
  Json messages = Json::array();
  if (const std::string* instructions = detail::text_member(*params, "instructions"))
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  if (input != params->end() && input->is_string())
    messages.push_back({{"role", "user"}, {"content", *input}});
  else if (input != params->end() && input->is_array())
    for (const Json& item : *input) detail::append_gym_item(messages, item, where);
  else
    detail::raise_gym_row("responses_create_params has no input", *params, where);
  if (messages.empty()) detail::raise_gym_row("responses_create_params.input has no messages", *params, where);
  return messages;
}

// The tools of a row as chat templates want them; null: none.
[[nodiscard]] inline Json gym_tools(const Json& row) {
  const auto params = row.find("responses_create_params");
  if (params == row.end() || !params->is_object() || !params->contains("tools")) return nullptr;
  Json out = Json::array();
  for (const Json& tool : (*params)["tools"]) {
    if (core::text_member(tool, "type") != "function") continue;
    Json function = Json::object();
    for (const char* key : {"name", "description", "parameters"})
      if (tool.contains(key) && !tool[key].is_null()) function[key] = tool[key];
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out.empty() ? Json() : out;
}

}  // namespace rlalgo::data
