// Reads the tool calls out of a model's message: the forms of Hermes and Qwen, and of Llama 3.1 and later.
//
//   <tool_call>
//   {"name": "calculator", "arguments": {"expression": "2 * 3"}}
//   </tool_call>
//
//   {"name": "calculator", "parameters": {"expression": "2 * 3"}}         the whole message; <|python_tag|> may stand before
//                                                                         it, and more of them behind a ;
//   <function=calculator>{"expression": "2 * 3"}</function>
//
// "arguments" may also be the text of a JSON object. As in transformers' response parsing, one block that is not such
// an object makes the whole message plain text: nothing is called. Source of the second and third form: the model card of
// Llama 3.1, and what vLLM's parser llama3_json reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace rlalgo::environment {

namespace detail {

// {"type": "function", "function": {"name", "arguments"}}, or nothing.
std::optional<nlohmann::ordered_json> tool_call(std::string_view text);

std::string_view trimmed(std::string_view text);

// The calls of a message that is nothing else; empty: it is something else.
[[nodiscard]] nlohmann::ordered_json bare_calls(std::string_view text);

// What a message begins with that may be one of bare_calls(), and whether that is sure.
enum class BareStart { no, perhaps, yes };
[[nodiscard]] BareStart bare_start(std::string_view text);

}  // namespace detail

// {"role": "assistant", "content": text before the first call, "tool_calls": […]}, without "tool_calls" when there are
// none.
[[nodiscard]] nlohmann::ordered_json assistant_message(const std::string& text);

}  // namespace rlalgo::environment

#ifndef RLALGO_COMPILED
#include <rlalgo/environment/detail/tool_calls_impl.hpp>
#endif
