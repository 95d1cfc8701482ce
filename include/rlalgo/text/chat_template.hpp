// Chat templates: messages → the text a model is prompted with.
//
// Messages are a JSON list of objects, at least {"role", "content"}. A template sees `messages`, `tools` and
// `documents` (null when absent), `add_generation_prompt`, the tokenizer's special tokens by role (bos_token …, unset
// ones are undefined) and the extra keyword arguments, as in transformers' apply_chat_template (5.23). The text already
// holds its special tokens: encode it with add_special_tokens = false.
//
// Messages are put into one form before every rendering (`as_templates_see`): fields that are null are left out,
// and a message's reasoning goes by the names reasoning_content and thinking. Nulls further inside stay.
//
// kwargs may hold what are arguments of apply_chat_template: `documents`, `tools`, and `chat_template`, another
// template's text or the name of one of the tokenizer's; those that say what is rendered (messages,
// add_generation_prompt, tokenize …) are refused.
//
// Errors: [rlalgo.text.6], [.7], [.8] from the template itself, see jinja.hpp. [rlalgo.text.9] no template of that
// name, or the tokenizer has none. [rlalgo.text.10] messages, tools, documents or kwargs have the wrong form.
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/jinja.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text {

struct ChatOptions {
  bool add_generation_prompt = false;   // end with the opening of an assistant message
  bool continue_final_message = false;  // end inside the last message, so that the model goes on with it
  Json tools = nullptr;                 // list of JSON schemas
  Json documents = nullptr;
  Json kwargs = Json::object();  // further variables and arguments, null = none; they win over special tokens
  std::time_t now = 0;           // for strftime_now; 0 = the template's own (fix_time), else the clock
};

// Messages, a list of objects, as templates see them.
[[nodiscard]] Json as_templates_see(const Json& messages);

class ChatTemplate {
 public:
  static ChatTemplate from_source(std::string source, SpecialTokens special_tokens = {},
                                  std::string name = "chat template");

  // The template of a model directory: chat_template.jinja with the files of additional_chat_templates, else
  // chat_template in tokenizer_config.json (a string, or a list of {name, template}). Nothing if it has none. Of several
  // that are named, tool_use renders what has tools, default the rest; without a default that is an error of the template.
  // `special_tokens`: those of the tokenizer in use; none given: those that the directory's files name.
  static std::optional<ChatTemplate> from_directory(const std::filesystem::path& directory,
                                                    const std::optional<SpecialTokens>& special_tokens = {});

  // The source of a bundled template; nothing if there is none of that name.
  static std::optional<std::string_view> bundled(std::string_view name);

  // The template that a configuration asks for. choice: "tokenizer_default", "tokenizer_default_fallback_<bundled>",
  // "jinja", a bundled name; empty: "jinja" if `jinja` is given, else "tokenizer_default". jinja: a template, or the
  // path of a file that holds one.
  static ChatTemplate select(std::string choice, const std::optional<std::string>& jinja,
                             const std::optional<ChatTemplate>& tokenizer_default, const SpecialTokens& special_tokens);

  static std::string bundled_names();

  [[nodiscard]] std::string render(const Json& messages, const ChatOptions& options = {}) const;

  // What strftime_now says from here on, instead of the clock.
  void fix_time(std::time_t now) { now_ = now; }
  // Whether a rendering may depend on the time.
  [[nodiscard]] bool reads_clock() const;

  [[nodiscard]] const std::string& source() const noexcept { return default_.source(); }
  [[nodiscard]] const SpecialTokens& special_tokens() const noexcept { return special_tokens_; }

 private:
  ChatTemplate(JinjaTemplate first, std::optional<JinjaTemplate> tool_use, SpecialTokens special_tokens)
      : default_(std::move(first)), tool_use_(std::move(tool_use)), special_tokens_(std::move(special_tokens)) {}

  [[noreturn]] static void not_found(const std::string& what, const std::string& found, const std::string& remedy);
  [[noreturn]] static void bad_messages(const std::string& what, const std::string& found, const std::string& expected);

  static std::optional<ChatTemplate> from_config(const Json& spec, SpecialTokens tokens, const std::string& where);

  // A template that refuses to render.
  static JinjaTemplate no_default(const std::string& where);

  static void check(const Json& messages, const ChatOptions& options);

  // What `name`, an argument of apply_chat_template, is: of `given`, or of kwargs.
  static Json argument(const char* name, const Json& given, const Json& kwargs);

  [[nodiscard]] JinjaTemplate chosen(const Json& kwargs, bool with_tools) const;

  // Renders with a marker behind the last message's text and cuts there.
  static std::string up_to_end_of(Json& variables, const JinjaTemplate& chosen, const JinjaOptions& jinja);

  JinjaTemplate default_;
  std::optional<JinjaTemplate> tool_use_;
  SpecialTokens special_tokens_;
  std::time_t now_ = 0;
};

}  // namespace rlalgo::text

#ifndef RLALGO_COMPILED
#include <rlalgo/text/detail/chat_template_impl.hpp>
#endif
