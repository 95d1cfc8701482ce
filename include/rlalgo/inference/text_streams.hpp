// Decodes completions as they grow: what ends them by their text stands on it (request.hpp, stop_strings.hpp).
//
// A completion goes on its prompt's text: tokenizers that work on words say differently where a text begins, so the last tokens of
// the prompt go ahead of it, unseen. Ids of `ends` are no text.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::inference {

// Makes the decoder of one completion of `prompt`.
[[nodiscard]] std::function<TextStream()> text_streams(text::Tokenizer tokenizer, std::span<const data::TokenId> prompt,
                                                       std::vector<data::TokenId> ends, bool skip_special_tokens);

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/text_streams_impl.hpp>
#endif
