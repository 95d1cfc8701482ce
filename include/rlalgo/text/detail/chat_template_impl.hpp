// Definitions of chat_template.hpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/detail/bundled_templates.hpp>
#include <rlalgo/text/detail/python_text.hpp>
#include <rlalgo/text/detail/tokenizer_class.hpp>
#include <rlalgo/text/detail/tokenizer_file.hpp>

namespace rlalgo::text {

RLALGO_INLINE Json as_templates_see(const Json& messages) {
  Json out = Json::array();
  for (const Json& message : messages) {
    const Json* reasoning = nullptr;
    for (const char* name : {"reasoning", "thinking", "reasoning_content"}) {
      const auto found = message.find(name);
      if (found != message.end() && !found->is_null()) reasoning = &*found;
    }
    Json& seen = out.emplace_back(Json::object());
    if (reasoning != nullptr) seen["thinking"] = *reasoning;
    for (const auto& [name, value] : message.items())
      if (!value.is_null()) seen[name] = value;
    if (reasoning != nullptr) seen["reasoning_content"] = *reasoning;
  }
  return out;
}

RLALGO_INLINE ChatTemplate ChatTemplate::from_source(std::string source, SpecialTokens special_tokens,
                                                     std::string name) {
  return ChatTemplate(JinjaTemplate(std::move(source), std::move(name)), std::nullopt, std::move(special_tokens));
}

RLALGO_INLINE std::optional<ChatTemplate> ChatTemplate::from_directory(
    const std::filesystem::path& directory, const std::optional<SpecialTokens>& special_tokens) {
  const detail::TokenizerSource files = detail::read_tokenizer_source(directory);
  const Json& config = files.config;
  try {
    SpecialTokens tokens = special_tokens ? *special_tokens : detail::special_tokens_of(files, directory);
    const std::filesystem::path file = directory / "chat_template.jinja",
                                with_tools = directory / "additional_chat_templates" / "tool_use.jinja";
    std::optional<JinjaTemplate> tool_use;
    if (std::optional<std::string> text = detail::read_if_present(with_tools))
      tool_use.emplace(*std::move(text), with_tools.string());
    if (std::optional<std::string> source = detail::read_if_present(file))
      return ChatTemplate(JinjaTemplate(*std::move(source), file.string()), std::move(tool_use), std::move(tokens));
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(with_tools.parent_path(), absent))
      if (entry.path().extension() == ".jinja")
        return ChatTemplate(no_default(with_tools.parent_path().string()), std::move(tool_use), std::move(tokens));
    if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
    return from_config(config.at("chat_template"), std::move(tokens), (directory / "tokenizer_config.json").string());
  } catch (const Json::exception& error) {
    detail::raise_bad_json((directory / "tokenizer_config.json").string(), core::json_reason(error.what()));
  }
}

RLALGO_INLINE std::optional<std::string_view> ChatTemplate::bundled(std::string_view name) {
  for (const auto& [known, source] : detail::bundled_templates) {
    if (known == name) return source;
  }
  return std::nullopt;
}

RLALGO_INLINE ChatTemplate ChatTemplate::select(std::string choice, const std::optional<std::string>& jinja,
                                                const std::optional<ChatTemplate>& tokenizer_default,
                                                const SpecialTokens& special_tokens) {
  constexpr std::string_view fallback = "tokenizer_default_fallback_";
  if (choice.empty()) choice = jinja ? "jinja" : "tokenizer_default";
  if (choice == "jinja") {
    if (!jinja || jinja->empty())
      not_found("chat_template is 'jinja', but chat_template_jinja is missing", "",
                "give chat_template_jinja: the template, or the path of its file");
    // A text in which nothing is put shows no message: it is the name of a file that is not there.
    const bool text = jinja->find("{{") != std::string::npos || jinja->find("{%") != std::string::npos;
    std::error_code status;
    const bool file = jinja->size() < 4096 && std::filesystem::exists(*jinja, status);
    if (!file && !text)
      not_found("chat_template_jinja is neither a template nor a file", "chat_template_jinja: " + jinja->substr(0, 200),
                "a template has {{ }} or {% %}; check the path of a file");
    return from_source(file ? *detail::read_if_present(*jinja) : *jinja, special_tokens,
                       file ? *jinja : "chat_template_jinja");
  }
  const bool has_fallback = choice.starts_with(fallback);
  if (choice == "tokenizer_default" || has_fallback) {
    if (tokenizer_default) return *tokenizer_default;
    if (!has_fallback) {
      not_found("the tokenizer's chat_template is null", "chat_template: tokenizer_default",
                "name a template (chat_template: chatml), or use tokenizer_default_fallback_chatml");
    }
    choice.erase(0, fallback.size());
  }
  const std::optional<std::string_view> source = bundled(choice);
  for (const std::string_view name : detail::unbundled_templates) {
    if (name == choice)
      not_found("the chat template '" + choice + "' is not bundled: its text may not be used commercially (CC BY-NC)",
                "chat_template: " + choice,
                "Cohere's checkpoints bring it along: chat_template: tokenizer_default; or save it as a file and set "
                "chat_template: jinja and chat_template_jinja: FILE");
  }
  if (!source)
    not_found("Template '" + choice + "' not found.", "",
              "bundled are " + bundled_names() + "; for another one set chat_template: jinja and chat_template_jinja");
  return from_source(std::string(*source), special_tokens, "bundled template '" + choice + "'");
}

RLALGO_INLINE std::string ChatTemplate::bundled_names() {
  std::string names;
  for (const auto& [name, source] : detail::bundled_templates) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

RLALGO_INLINE std::string ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  check(messages, options);
  Json variables = special_tokens_.to_json();
  if (options.kwargs.is_object())
    for (const auto& [name, value] : options.kwargs.items())
      if (name != "chat_template") variables[name] = value;
  variables["messages"] = as_templates_see(messages);
  variables["tools"] = argument("tools", options.tools, options.kwargs);
  variables["documents"] = argument("documents", options.documents, options.kwargs);
  variables["add_generation_prompt"] = options.add_generation_prompt;
  const JinjaTemplate used = chosen(options.kwargs, !variables["tools"].is_null());
  const JinjaOptions jinja{.now = options.now != 0 ? options.now : now_};
  if (!options.continue_final_message) return used.render(variables, jinja);
  return up_to_end_of(variables, used, jinja);
}

RLALGO_INLINE Json ChatTemplate::argument(const char* name, const Json& given, const Json& kwargs) {
  const auto named = kwargs.is_object() ? kwargs.find(name) : kwargs.end();
  const bool in_kwargs = kwargs.is_object() && named != kwargs.end() && !named->is_null();
  if (in_kwargs && !given.is_null())
    bad_messages(std::string(name) + " are given twice", "as themselves and in chat_template_kwargs", "one of the two");
  const Json& value = in_kwargs ? *named : given;
  if (value.is_null()) return value;
  if (!value.is_array())
    bad_messages(std::string(name) + " are no list", value.dump().substr(0, 60), "a list of objects");
  for (const Json& item : value)
    if (!item.is_object())
      bad_messages("one of " + std::string(name) + " is no object", item.dump().substr(0, 60),
                   std::string(name) == "tools" ? "a JSON schema" : "an object such as {\"title\", \"text\"}");
  return value;
}

RLALGO_INLINE JinjaTemplate ChatTemplate::chosen(const Json& kwargs, bool with_tools) const {
  const auto named = kwargs.is_object() ? kwargs.find("chat_template") : kwargs.end();
  if (kwargs.is_object() && named != kwargs.end() && !named->is_null()) {
    if (!named->is_string())
      bad_messages("chat_template in chat_template_kwargs is no template", named->dump().substr(0, 60), "a text");
    const auto& text = named->get_ref<const std::string&>();
    if (tool_use_ && text == "tool_use") return *tool_use_;
    if (tool_use_ && text == "default") return default_;
    return JinjaTemplate(text, "chat_template in chat_template_kwargs");
  }
  return tool_use_ && with_tools ? *tool_use_ : default_;
}

RLALGO_INLINE bool ChatTemplate::reads_clock() const {
  const auto reads = [](const JinjaTemplate& one) { return one.source().find("strftime_now") != std::string::npos; };
  return reads(default_) || (tool_use_ && reads(*tool_use_));
}

RLALGO_INLINE void ChatTemplate::not_found(const std::string& what, const std::string& found,
                                           const std::string& remedy) {
  core::raise("text", 9, {.what = what, .found = found, .remedy = remedy});
}

RLALGO_INLINE void ChatTemplate::bad_messages(const std::string& what, const std::string& found,
                                              const std::string& expected) {
  core::raise("text", 10, {.what = what, .found = found, .expected = expected});
}

RLALGO_INLINE std::optional<ChatTemplate> ChatTemplate::from_config(const Json& spec, SpecialTokens tokens,
                                                                    const std::string& where) {
  if (spec.is_string()) return from_source(spec.get<std::string>(), std::move(tokens), "chat_template in " + where);
  if (!spec.is_array()) return std::nullopt;
  std::optional<JinjaTemplate> first, tool_use;
  for (const Json& entry : spec) {
    const auto name = entry.at("name").get<std::string>();
    if (name != "default" && name != "tool_use") continue;
    (name == "default" ? first : tool_use)
        .emplace(entry.at("template").get<std::string>(), "chat_template '" + name + "' in " + where);
  }
  if (!first) first.emplace(no_default("chat_template in " + where));
  return ChatTemplate(*std::move(first), std::move(tool_use), std::move(tokens));
}

RLALGO_INLINE JinjaTemplate ChatTemplate::no_default(const std::string& where) {
  return JinjaTemplate("{{ raise_exception('the model has several chat templates and none of them is the default') }}",
                       where);
}

RLALGO_INLINE void ChatTemplate::check(const Json& messages, const ChatOptions& options) {
  if (!messages.is_array())
    bad_messages("the messages of a chat are not a list", messages.type_name(), "a list of {\"role\", \"content\"}");
  for (const Json& message : messages) {
    if (!message.is_object())
      bad_messages("a chat message is no object", std::string(message.type_name()) + " " + message.dump().substr(0, 60),
                   "{\"role\": …, \"content\": …}");
  }
  if (options.continue_final_message && (messages.empty() || options.add_generation_prompt)) {
    bad_messages("continue_final_message needs a last message and no generation prompt",
                 messages.empty() ? "no messages" : "add_generation_prompt", "");
  }
  if (options.kwargs.is_null()) return;
  if (!options.kwargs.is_object())
    bad_messages("chat template arguments are not a mapping", options.kwargs.type_name(), "name: value");
  for (const char* name : {"conversation", "messages", "add_generation_prompt", "continue_final_message", "tokenize",
                           "sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors",
                           "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"})
    if (options.kwargs.contains(name))
      bad_messages("chat_template_kwargs holds " + std::string(name) + ", which no template sees", name,
                   "variables of the template, documents, tools or chat_template");
}

RLALGO_INLINE std::string ChatTemplate::up_to_end_of(Json& variables, const JinjaTemplate& chosen,
                                                     const JinjaOptions& jinja) {
  constexpr std::string_view marker = "CONTINUE_FINAL_MESSAGE_TAG ", bare = "CONTINUE_FINAL_MESSAGE_TAG";
  Json& message = variables["messages"].back();
  Json* text = message.contains("content") ? &message["content"] : nullptr;
  if (text != nullptr && text->is_array()) {
    Json* last = nullptr;
    for (Json& part : *text) {
      if (part.is_object() && part.contains("text")) last = &part["text"];
    }
    text = last;
  }
  if (text == nullptr || !text->is_string())
    bad_messages("continue_final_message: the last message has no text to continue", "", "a \"content\" string");
  *text = text->get<std::string>() + std::string(marker);
  std::string rendered = chosen.render(variables, jinja);
  const std::size_t at = rendered.rfind(bare);
  if (at == std::string::npos) {
    bad_messages("continue_final_message: the template does not show the last message", chosen.name(),
                 "a template that prints it");
  }
  const bool kept = rendered.compare(at, marker.size(), marker) == 0;
  rendered.resize(at);
  // The template trimmed the message, so what it would have trimmed before the marker goes too.
  return kept ? rendered : std::string(detail::python_strip(rendered, {false, true}));
}

}  // namespace rlalgo::text
