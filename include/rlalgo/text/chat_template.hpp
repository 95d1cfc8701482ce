// Chat templates: messages → the text a model is prompted with.
//
// Messages are a JSON list of objects, at least {"role", "content"}. A template sees `messages`, `tools` and
// `documents` (null when absent), `add_generation_prompt`, the tokenizer's special tokens by role (bos_token …, unset
// ones are undefined) and the extra keyword arguments, as in transformers' apply_chat_template. The text already holds
// its special tokens: encode it with add_special_tokens = false.
//
// Errors: [rlalgo.text.6], [.7], [.8] from the template itself, see jinja.hpp. [rlalgo.text.9] no template of that
// name, or the tokenizer has none. [rlalgo.text.10] the messages have the wrong form.
#pragma once

#include <cstddef>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/bundled_templates.hpp>
#include <rlalgo/text/detail/python_text.hpp>
#include <rlalgo/text/detail/tokenizer_file.hpp>
#include <rlalgo/text/jinja.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text {

struct ChatOptions {
  bool add_generation_prompt = false;   // end with the opening of an assistant message
  bool continue_final_message = false;  // end inside the last message, so that the model goes on with it
  Json tools = nullptr;                 // list of JSON schemas
  Json documents = nullptr;
  Json kwargs = Json::object();  // further variables; they win over special tokens
  std::time_t now = 0;           // for strftime_now; 0 = the clock
};

class ChatTemplate {
 public:
  static ChatTemplate from_source(std::string source, SpecialTokens special_tokens = {},
                                  std::string name = "chat template") {
    return ChatTemplate(JinjaTemplate(std::move(source), std::move(name)), std::nullopt, std::move(special_tokens));
  }

  // The template of a model directory: chat_template.jinja, else chat_template in tokenizer_config.json (a string, or a
  // list of {name, template}). Nothing if it has none.
  static std::optional<ChatTemplate> from_directory(const std::filesystem::path& directory) {
    const Json config = detail::read_json_if_present(directory / "tokenizer_config.json");
    const Json map = detail::read_json_if_present(directory / "special_tokens_map.json");
    try {
      SpecialTokens tokens = SpecialTokens::from_config(config, map);
      const std::filesystem::path file = directory / "chat_template.jinja";
      if (std::optional<std::string> source = detail::read_if_present(file)) {
        const std::filesystem::path with_tools = directory / "additional_chat_templates" / "tool_use.jinja";
        std::optional<JinjaTemplate> tool_use;
        if (std::optional<std::string> text = detail::read_if_present(with_tools))
          tool_use.emplace(*std::move(text), with_tools.string());
        return ChatTemplate(JinjaTemplate(*std::move(source), file.string()), std::move(tool_use), std::move(tokens));
      }
      if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
      return from_config(config.at("chat_template"), std::move(tokens), (directory / "tokenizer_config.json").string());
    } catch (const Json::exception& error) {
      detail::raise_bad_json((directory / "tokenizer_config.json").string(), error.what());
    }
  }

  // The source of a bundled template; nothing if there is none of that name.
  static std::optional<std::string_view> bundled(std::string_view name) {
    for (const auto& [known, source] : detail::bundled_templates) {
      if (known == name) return source;
    }
    return std::nullopt;
  }

  // The template that a configuration asks for. choice: "tokenizer_default", "tokenizer_default_fallback_<bundled>",
  // "jinja", a bundled name; empty: "jinja" if `jinja` is given, else "tokenizer_default". jinja: a template, or the
  // path of a file that holds one.
  static ChatTemplate select(std::string choice, const std::optional<std::string>& jinja,
                             const std::optional<ChatTemplate>& tokenizer_default,
                             const SpecialTokens& special_tokens) {
    constexpr std::string_view fallback = "tokenizer_default_fallback_";
    if (choice.empty()) choice = jinja ? "jinja" : "tokenizer_default";
    if (choice == "jinja") {
      if (!jinja || jinja->empty())
        not_found("chat_template is 'jinja', but chat_template_jinja is missing", "",
                  "give chat_template_jinja: the template, or the path of its file");
      std::error_code status;
      const bool file = jinja->size() < 4096 && std::filesystem::is_regular_file(*jinja, status);
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
      not_found(
          "Template '" + choice + "' not found.", "",
          "bundled are " + bundled_names() + "; for another one set chat_template: jinja and chat_template_jinja");
    return from_source(std::string(*source), special_tokens, "bundled template '" + choice + "'");
  }

  static std::string bundled_names() {
    std::string names;
    for (const auto& [name, source] : detail::bundled_templates)
      names += (names.empty() ? "" : ", ") + std::string(name);
    return names;
  }

  [[nodiscard]] std::string render(const Json& messages, const ChatOptions& options = {}) const {
    check(messages, options);
    Json variables = special_tokens_.to_json();
    for (const auto& [name, value] : options.kwargs.items()) variables[name] = value;
    variables["messages"] = with_reasoning(messages);
    variables["tools"] = options.tools;
    variables["documents"] = options.documents;
    variables["add_generation_prompt"] = options.add_generation_prompt;
    const JinjaTemplate& chosen = tool_use_ && !options.tools.is_null() ? *tool_use_ : default_;
    const JinjaOptions jinja{.now = options.now};
    if (!options.continue_final_message) return chosen.render(variables, jinja);
    return up_to_end_of(variables, chosen, jinja);
  }

  [[nodiscard]] const std::string& source() const noexcept { return default_.source(); }
  [[nodiscard]] const SpecialTokens& special_tokens() const noexcept { return special_tokens_; }

 private:
  ChatTemplate(JinjaTemplate first, std::optional<JinjaTemplate> tool_use, SpecialTokens special_tokens)
      : default_(std::move(first)), tool_use_(std::move(tool_use)), special_tokens_(std::move(special_tokens)) {}

  [[noreturn]] static void not_found(const std::string& what, const std::string& found, const std::string& remedy) {
    core::raise("text", 9, {.what = what, .found = found, .remedy = remedy});
  }
  [[noreturn]] static void bad_messages(const std::string& what, const std::string& found,
                                        const std::string& expected) {
    core::raise("text", 10, {.what = what, .found = found, .expected = expected});
  }

  static std::optional<ChatTemplate> from_config(const Json& spec, SpecialTokens tokens, const std::string& where) {
    if (spec.is_string()) return from_source(spec.get<std::string>(), std::move(tokens), "chat_template in " + where);
    if (!spec.is_array()) return std::nullopt;
    std::optional<JinjaTemplate> first, tool_use;
    for (const Json& entry : spec) {
      const auto name = entry.at("name").get<std::string>();
      if (name != "default" && name != "tool_use") continue;
      (name == "default" ? first : tool_use)
          .emplace(entry.at("template").get<std::string>(), "chat_template '" + name + "' in " + where);
    }
    if (!first) return std::nullopt;
    return ChatTemplate(*std::move(first), std::move(tool_use), std::move(tokens));
  }

  static void check(const Json& messages, const ChatOptions& options) {
    if (!messages.is_array())
      bad_messages("the messages of a chat are not a list", messages.type_name(), "a list of {\"role\", \"content\"}");
    for (const Json& message : messages) {
      if (!message.is_object())
        bad_messages("a chat message is no object",
                     std::string(message.type_name()) + " " + message.dump().substr(0, 60),
                     "{\"role\": …, \"content\": …}");
    }
    if (options.continue_final_message && (messages.empty() || options.add_generation_prompt)) {
      bad_messages("continue_final_message needs a last message and no generation prompt",
                   messages.empty() ? "no messages" : "add_generation_prompt", "");
    }
    if (!options.kwargs.is_object())
      bad_messages("chat template arguments are not a mapping", options.kwargs.type_name(), "name: value");
  }

  // A message's reasoning goes by three names; templates read reasoning_content or thinking.
  static Json with_reasoning(const Json& messages) {
    Json out = Json::array();
    for (const Json& message : messages) {
      const Json* reasoning = nullptr;
      for (const char* name : {"reasoning", "thinking", "reasoning_content"}) {
        const auto found = message.find(name);
        if (found != message.end() && !found->is_null()) reasoning = &*found;
      }
      if (reasoning == nullptr) {
        out.push_back(message);
        continue;
      }
      Json aliased = Json::object();
      aliased["thinking"] = *reasoning;
      for (const auto& [name, value] : message.items()) aliased[name] = value;
      aliased["reasoning_content"] = *reasoning;
      out.push_back(std::move(aliased));
    }
    return out;
  }

  // Renders with a marker behind the last message's text and cuts there.
  static std::string up_to_end_of(Json& variables, const JinjaTemplate& chosen, const JinjaOptions& jinja) {
    constexpr std::string_view marker = "CONTINUE_FINAL_MESSAGE_TAG ", bare = "CONTINUE_FINAL_MESSAGE_TAG";
    Json* text = &variables["messages"].back()["content"];
    if (text->is_array()) {
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

  JinjaTemplate default_;
  std::optional<JinjaTemplate> tool_use_;
  SpecialTokens special_tokens_;
};

}  // namespace rlalgo::text
