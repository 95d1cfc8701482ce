// Definitions of prompts.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/drawn_turns.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/prompts.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

namespace detail {

[[noreturn]] RLALGO_INLINE void too_long(const std::string& found, const ServedModel& model) {
  refuse_request(400, 13,
                 {.what = "the prompt does not fit: this model's maximum context length is " +
                          std::to_string(model.length_limit()) + " tokens",
                  .found = found,
                  .expected = "fewer, so that a completion has room",
                  .remedy = "shorten the prompt, or send truncate_prompt_tokens"},
                 {}, context_exceeded);
}

// Text that cannot fit is not tokenized: no token stands for more than a hundred bytes on average.
inline std::vector<data::TokenId> encoded(const std::string& text, const ServedModel& model, bool special_tokens) {
  constexpr std::size_t bytes_a_token = 100;
  if (text.size() / bytes_a_token > static_cast<std::size_t>(model.length_limit()))
    too_long(std::to_string(text.size()) + " bytes", model);
  return model.tokenizer.encode(text, special_tokens);
}

inline std::string joined_parts(const Json& parts, const std::string& place) {
  std::string out;
  bool first = true;
  for (const Json& part : parts) {
    std::optional<std::string> text;
    if (part.is_string()) text = part.get<std::string>();
    if (part.is_object() && part.value("type", Json("text")) == "text" && part.contains("text") &&
        part["text"].is_string())
      text = part["text"].get<std::string>();
    if (!text)
      refuse_request(400, 12,
                     {.what = "a part of a message is no text",
                      .found = part.is_object() && part.contains("type") ? quoted(part["type"]) : quoted(part),
                      .expected = "{\"type\": \"text\", \"text\": …}",
                      .where = place,
                      .remedy = "the model reads text only"},
                     place);
    if (!std::exchange(first, false)) out += '\n';
    out += *text;
  }
  return out;
}

// The ids of a conversation with answers that are known by theirs; none where it has no such answer, or a template that does
// not tell the beginnings of a conversation.
inline std::vector<data::TokenId> drawn_conversation(std::vector<DrawnTurn> turns, const Json& messages,
                                                     const text::ChatTemplate& chosen, text::ChatOptions options,
                                                     const ServedModel& model, const std::string& text) {
  // The model goes on with the last message: that one has no end yet.
  if (options.continue_final_message && !turns.empty() && turns.back().message + 1 == messages.size()) turns.pop_back();
  if (turns.empty()) return {};
  options.continue_final_message = false;
  Telling telling;
  telling.rendered = [&](std::size_t count, bool opened) {
    options.add_generation_prompt = opened;
    return chosen.render(Json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)), options);
  };
  telling.encode = [&](const std::string& part) { return encoded(part, model, false); };
  for (const data::TokenId id : model.stop_ids) telling.ends.emplace_back(id, model.tokenizer.token(id));
  try {
    return ids_of_conversation(turns, telling, text);
  } catch (const core::Error& error) {
    if (error.room() != "text") throw;
    return {};
  }
}

}  // namespace detail

RLALGO_INLINE void check_length(const Prompt& prompt, const ServedModel& model, std::int64_t least) {
  if (prompt.ids.empty())
    refuse_request(400, 13, {.what = "a prompt is empty", .expected = "at least one token"}, "prompt");
  if (static_cast<std::int64_t>(prompt.ids.size()) + least > model.length_limit())
    detail::too_long(std::to_string(prompt.ids.size()) + " tokens", model);
}

RLALGO_INLINE std::vector<Prompt> read_prompts(Fields& fields, const std::string& name, const ServedModel& model,
                                               bool special_tokens) {
  const Json& value = fields.required(name);
  const std::int64_t vocab = model.decoder->config().vocab_size;
  const auto text = [&](const Json& one) {
    Prompt out{.ids = {}, .text = one.get<std::string>()};
    out.ids = detail::encoded(out.text, model, special_tokens);
    return out;
  };
  std::vector<Prompt> out;
  if (value.is_string()) {
    out.push_back(text(value));
  } else if (value.is_array() && !value.empty() && value[0].is_number()) {
    out.push_back({.ids = token_ids(value, vocab, name), .text = {}});
  } else if (value.is_array() && !value.empty()) {
    const bool texts = value[0].is_string();
    for (std::size_t i = 0; i < value.size(); ++i) {
      const Json& one = value[i];
      const std::string place = name + "[" + std::to_string(i) + "]";
      if (texts ? !one.is_string() : !one.is_array())
        fields.wrong_type(name, one, texts ? "a list of texts alone" : "texts, or lists of token ids");
      out.push_back(texts ? text(one) : Prompt{.ids = token_ids(one, vocab, place), .text = {}});
    }
  } else {
    fields.wrong_type(name, value, "a text, a list of token ids, or a list of either");
  }
  return out;
}

RLALGO_INLINE Json checked_messages(const Json& messages, const std::string& place) {
  const auto wrong = [](const std::string& what, const Json& found, const std::string& expected,
                        const std::string& where) {
    refuse_request(400, 3, {.what = what, .found = detail::quoted(found), .expected = expected, .where = where}, where);
  };
  if (!messages.is_array() || messages.empty())
    wrong("messages are no list", messages, "[{\"role\": …, \"content\": …}]", place);
  Json out = messages;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string at = place + "[" + std::to_string(i) + "]";
    Json& message = out[i];
    if (!message.is_object()) wrong("a message is no object", message, "{\"role\": …, \"content\": …}", at);
    if (!message.contains("role") || !message["role"].is_string())
      wrong("a message has no role", message.value("role", Json()), "a text", at + ".role");
    const bool assistant = message["role"] == "assistant";
    const bool lacks = !message.contains("content") || message["content"].is_null();
    if (lacks && !assistant)
      refuse_request(400, 2, {.what = "a message has no content", .where = at + ".content"}, at + ".content");
    if (lacks)
      message.erase("content");
    else if (message["content"].is_array())
      message["content"] = detail::joined_parts(message["content"], at + ".content");
    else if (!message["content"].is_string())
      wrong("a message's content is no text", message["content"], "a text, or a list of parts", at + ".content");
    if (!message.contains("tool_calls")) continue;
    if (message["tool_calls"].is_null()) {
      message.erase("tool_calls");
      continue;
    }
    if (!message["tool_calls"].is_array())
      wrong("tool_calls is no list", message["tool_calls"], "a list", at + ".tool_calls");
    for (Json& call : message["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
        wrong("a tool call has no function", call, "{\"function\": {\"name\", \"arguments\"}}", at + ".tool_calls");
      Json& function = call["function"];
      if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
      auto [value, problem] = core::read_json<Json>(function["arguments"].get_ref<const std::string&>());
      if (problem.text.empty() && value.is_object()) function["arguments"] = std::move(value);
    }
  }
  return out;
}

RLALGO_INLINE Prompt render_chat(Fields& fields, const Json& messages, const ServedModel& model) {
  text::ChatOptions options{.add_generation_prompt = fields.flag("add_generation_prompt", true),
                            .continue_final_message = fields.flag("continue_final_message", false)};
  if (options.continue_final_message && options.add_generation_prompt) {
    if (fields.has("add_generation_prompt"))
      fields.out_of_range("continue_final_message", "true", "false where add_generation_prompt is true");
    options.add_generation_prompt = false;
  }
  if (const Json* const tools = fields.list("tools"); tools != nullptr && !tools->empty()) options.tools = *tools;
  if (const Json* const documents = fields.list("documents")) options.documents = *documents;
  if (const Json* const kwargs = fields.object("chat_template_kwargs")) options.kwargs = *kwargs;
  const bool special_tokens = fields.flag("add_special_tokens", false);
  const std::optional<std::string> source = fields.text("chat_template");
  if (!source && !model.chat_template)
    refuse_request(400, 12,
                   {.what = "the model has no chat template",
                    .remedy = "put chat_template.jinja into its directory, or send chat_template"});
  const text::ChatTemplate chosen =
      source ? text::ChatTemplate::from_source(*source, model.tokenizer.special_tokens(), "chat_template")
             : *model.chat_template;
  Json shown = messages;
  std::vector<detail::DrawnTurn> turns = detail::take_drawn_turns(shown, "messages", model);
  Prompt out;
  out.text = chosen.render(shown, options);
  if (!special_tokens) out.ids = detail::drawn_conversation(std::move(turns), shown, chosen, options, model, out.text);
  if (out.ids.empty()) out.ids = detail::encoded(out.text, model, special_tokens);
  return out;
}

}  // namespace rlalgo::serve
