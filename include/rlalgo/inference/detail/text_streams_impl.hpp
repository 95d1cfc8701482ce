// Definitions of text_streams.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/inference/text_streams.hpp>
#include <rlalgo/text/stream_decoder.hpp>

namespace rlalgo::inference {

RLALGO_INLINE std::function<TextStream()> text_streams(text::Tokenizer tokenizer, std::span<const data::TokenId> prompt,
                                                       std::vector<data::TokenId> ends, bool skip_special_tokens) {
  constexpr std::size_t context = 8;
  std::vector<data::TokenId> before;
  if (!tokenizer.streams_bytes()) {
    const auto last = prompt.last(std::min(context, prompt.size()));
    before.assign(last.begin(), last.end());
  }
  return [tokenizer = std::move(tokenizer), before = std::move(before), ends = std::move(ends), skip_special_tokens] {
    const auto stream = std::make_shared<text::StreamDecoder>(tokenizer, skip_special_tokens);
    for (const data::TokenId id : before) (void)stream->push(id);
    return TextStream{[stream, ends](data::TokenId id) {
                        const bool end = std::find(ends.begin(), ends.end(), id) != ends.end();
                        return end ? std::string() : stream->push(id);
                      },
                      [stream] { return stream->finish(); }};
  };
}

}  // namespace rlalgo::inference
