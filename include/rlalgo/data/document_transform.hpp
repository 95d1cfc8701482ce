// `datasets[].type` of strided training: rows → documents of token ids.
//
//   ebft_pretrain.transform             question, else text, with special tokens; every token is trained
//   ebft_strided_structured.transform   prompt (input, prompt or question; special tokens) + completion (output, completion
//                                       or answer; none added); the completion is trained
//   ebft_strided_chat.transform         messages through the chat template; the words of all answers are trained, and the
//                                       prompt ends where the first begins
//   ebft_reasoning.transform_strided    the same, of the last answer alone; with mask_thinking its thoughts are not trained
//
// Documents are cut at `length` tokens: a completion is cut first, and of a prompt that fills it all one token of the
// completion is kept. There is no padding. What an answer's words are is found by rendering the conversation up to it
// again, as axolotl 0.19 does it.
// mask_thinking: the tokens from <think> to </think>, marks included, are not trained, also where the generation prompt
// opens the thought; the prompt ends behind them. Where the marks are no single tokens nothing is masked.
// Conversations are rendered with the row's tools and chat_template_kwargs (template_columns.hpp); a text that has such
// columns is an error.
//
// A user's own function makes token ids itself: `input_ids`, and as it likes `labels` (−100: not trained), `attention_mask`
// (0: padding, dropped) and `prompt_length`; without labels every token is trained, and where they begin is the
// prompt_length of a row that has none (0: a text without a prompt).
// Errors: [rlalgo.data.10] a row lacks a column, or it has another type; those of tokenizer and chat template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/data/document.hpp>
#include <rlalgo/data/table.hpp>
#include <rlalgo/data/template_columns.hpp>

namespace rlalgo::data {

// How a model's texts are read.
struct DocumentTools {
  std::function<std::vector<TokenId>(const std::string& text, bool special)> encode;
  Render render;
};

struct DocumentConfig {
  std::int64_t length = 512;  // tokens of a document at most
  bool mask_thinking = false;
};

[[nodiscard]] const std::vector<std::string>& document_transform_names();

// Takes the tokens of thoughts out of `mask` [ids]; those of the text from `begin` on, which may continue one that opens in
// the few tokens before it.
void mask_thoughts(std::span<const TokenId> ids, std::size_t begin, std::vector<std::uint8_t>& mask,
                   const DocumentTools& tools);

// `name` is one of document_transform_names().
[[nodiscard]] Document document_of(const std::string& name, const Json& row, const std::string& where,
                                   const DocumentTools& tools, const DocumentConfig& config);

// A row of token ids; `vocabulary`: how many there are.
[[nodiscard]] Document document_of_ids(const Json& row, const std::string& where, std::int64_t vocabulary,
                                       const DocumentConfig& config);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/document_transform_impl.hpp>
#endif
