// `datasets[].type` of energy-based fine-tuning with completions: rows → prompt, ground_truth, and the turns after it.
//
//   ebft_opencode.transform                   input → one user message; output → ground_truth
//   ebft_chat_multiturn.transform             the first answer is the ground truth; what follows → remaining_turns
//   ebft_chat_multiturn.transform_last_turn   the last answer
//   ebft_chat_multiturn.transform_all_turns   one row per answer
//   ebft_reasoning.transform                  the last answer, its thinking kept
//   ebft_reasoning.transform_answer_only      … without what stands between <think> and </think>
//   ebft_reasoning.transform_split_thinking   thinking goes to reasoning_content of every message; the ground truth is put
//                                             together again as "<think>\n…\n</think>\n\n…"
//
// Messages are the column messages, else conversations. Every other column is dropped, but for tools and
// chat_template_kwargs, which the prompt is rendered with, and environment, which says who plays the row. A conversation
// without an answer has the ground truth "". Source: axolotl 0.19 `prompt_strategies/ebft`.
// Errors: [rlalgo.data.10] a row lacks a column, or it has another type; [rlalgo.data.35] the ground truth is an answer
// with calls, which are not in its content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

[[nodiscard]] const std::vector<std::string>& matching_transform_names();

// The rows that one row becomes; `name` is one of matching_transform_names().
[[nodiscard]] std::vector<Json> matching_rows(const std::string& name, const Json& row, const std::string& where);

// Every row of `table` transformed.
[[nodiscard]] Table matching_table(const std::string& name, const Table& table);

// The messages of a row, [] where it has none. Used by document_transform.hpp, too.
[[nodiscard]] Json messages_of(const Json& row, const std::string& where);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/matching_transform_impl.hpp>
#endif
