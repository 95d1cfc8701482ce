// Reads the tool calls out of a model's message: the Hermes and Qwen format.
//
//   <tool_call>
//   {"name": "calculator", "arguments": {"expression": "2 * 3"}}
//   </tool_call>
//
// "arguments" may also be the text of a JSON object. As in transformers' response parsing, one block that is not such
// an object makes the whole message plain text: nothing is called.
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

}  // namespace detail

// {"role": "assistant", "content": text before the first call, "tool_calls": […]}, without "tool_calls" when there are
// none.
[[nodiscard]] nlohmann::ordered_json assistant_message(const std::string& text);

}  // namespace rlalgo::environment

#ifndef RLALGO_COMPILED
#include <rlalgo/environment/detail/tool_calls_impl.hpp>
#endif
