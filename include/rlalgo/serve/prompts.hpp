// What a request prompts with: texts, token ids or a conversation, as token ids.
//
// Errors (status 400): [rlalgo.serve.2] no prompt; [.3] one of another form; [.4] an id outside the vocabulary; [.12] a
// part of a message that is no text; [.13] a prompt that is empty, or leaves no room for a completion.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/served_model.hpp>

namespace rlalgo::serve {

struct Prompt {
  std::vector<data::TokenId> ids;
  std::string text;  // as it was sent; empty where it came as ids
};

// "prompt" or "prompts": a text, a list of ids, or a list of either. `special_tokens`: texts get the tokenizer's.
[[nodiscard]] std::vector<Prompt> read_prompts(Fields& fields, const std::string& name, const ServedModel& model,
                                               bool special_tokens);

// Raises serve.13 where `prompt` leaves no room for `least` tokens.
void check_length(const Prompt& prompt, const ServedModel& model, std::int64_t least = 1);

// Messages as templates read them: text parts joined by line ends, arguments of tool calls as objects.
[[nodiscard]] Json checked_messages(const Json& messages, const std::string& place);

// A conversation through the chat template. Of `fields`: add_generation_prompt, continue_final_message, tools,
// documents, chat_template, chat_template_kwargs, add_special_tokens.
[[nodiscard]] Prompt render_chat(Fields& fields, const Json& messages, const ServedModel& model);

namespace detail {

// Raises serve.13; `found`: the length of the prompt.
[[noreturn]] void too_long(const std::string& found, const ServedModel& model);

}  // namespace detail

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/prompts_impl.hpp>
#endif
