// The fixed text formats of preference data: chatml.*, llama3.* and zephyr.nectar.
//
//   chatml    S = <|im_start|>system\n…<|im_end|>\n
//             prompt = S <|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n
//             answer = …<|im_end|>
//   llama3    the same with <|start_header_id|>role<|end_header_id|>\n\n…<|eot_id|>; no begin-of-text token
//   zephyr    <|system|>\n</s>\n<|user|>\n…</s>\n<|assistant|>\n, answers without an end token
//
//   pairs      default, argilla, argilla_chat, icr, intel, prompt_pairs, ultra
//   unpaired   argilla, argilla_chat, intel, prompt_pairs, ultra
//
// Source: the prompt strategies of axolotl. The system column is `system`, used where it is not empty.
// Errors: [rlalgo.data.21] fewer than two ranked answers for zephyr.nectar; those of preference_row.hpp.
// Departures: `*.argilla` exists for pairs (documented by axolotl, absent there; the same as default). argilla_chat
// takes all turns but the last as the prompt, each with its own role (axolotl 0.19 does so for KTO; its DPO form takes
// turns 0 and 1 whatever they are). zephyr.nectar: rank 1 is the best answer, so chosen is the best and rejected the
// runner-up; axolotl takes the worst as chosen. A null column does not hide the next one in `default`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/data/preference_row.hpp>

namespace rlalgo::data {

namespace detail {

// How a dialogue is spelled.
struct Frame {
  std::string_view open, after_role, close, between;
  [[nodiscard]] std::string turn(const std::string& role, const std::string& text) const {
    return std::string(open) + role + std::string(after_role) + text + std::string(close) + std::string(between);
  }
  [[nodiscard]] std::string assistant() const { return std::string(open) + "assistant" + std::string(after_role); }
  [[nodiscard]] std::string answer(const std::string& text) const { return text + std::string(close); }
  [[nodiscard]] std::string prompt(const std::string& system, const std::string& user) const {
    return (system.empty() ? "" : turn("system", system)) + turn("user", user) + assistant();
  }
};

inline constexpr Frame chatml_frame{"<|im_start|>", "\n", "<|im_end|>", "\n"};
inline constexpr Frame llama3_frame{"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", ""};

// The first of `fields` that the row has; the last one is required.
const std::string& first_text(const Json& row, const std::vector<std::string>& fields, const std::string& where);

// All turns of `messages` but the last, each with its own role, then the assistant's header.
std::string prompt_of_turns(const Frame& frame, const Json& row, const std::string& field, const std::string& where);

std::string last_turn(const Json& row, const std::string& field, const std::string& where);

void set_pair(Json& row, std::string prompt, std::string chosen, std::string rejected);

RowTransform pair_dialogue(Frame frame, const std::string& name);

RowTransform unpaired_dialogue(Frame frame, const std::string& name);

void nectar_row(Json& row, const std::string& where);

}  // namespace detail

// The format `name` ("chatml.intel") of a family; empty when there is none of that name.
[[nodiscard]] RowTransform dialogue_format(const std::string& name, PreferenceFamily family);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/dialogue_format_impl.hpp>
#endif
