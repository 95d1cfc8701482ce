// Decodes ids one at a time, for streaming: never emits part of a character.
//
// Invariant: the concatenation of everything pushed and finish() equals Tokenizer::decode of all the ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/unicode.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::text {

class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special_tokens) {}

  // The text that became certain with this id; often empty in the middle of a character.
  [[nodiscard]] std::string push(Tokenizer::Id id) {
    if (tokenizer_.streams_bytes()) {
      pending_ += tokenizer_.token_bytes(id, skip_special_);
      const std::size_t whole = detail::complete_prefix(pending_);
      std::string text = detail::to_valid_utf8(std::string_view(pending_).substr(0, whole));
      pending_.erase(0, whole);
      return text;
    }
    // Other decoders look at neighbours: decode everything and emit what is new, unless it may still change.
    ids_.push_back(id);
    if (tokenizer_.waits_for_next(id)) return {};
    std::string text = tokenizer_.decode(ids_, skip_special_);
    if (text.ends_with(detail::replacement_character)) return {};
    return emit(text);
  }

  // What is left at the end: an unfinished character becomes U+FFFD. The decoder can then be used for a new stream.
  [[nodiscard]] std::string finish() {
    std::string rest =
        tokenizer_.streams_bytes() ? detail::to_valid_utf8(pending_) : emit(tokenizer_.decode(ids_, skip_special_));
    pending_.clear();
    ids_.clear();
    emitted_ = 0;
    return rest;
  }

 private:
  std::string emit(const std::string& text) {
    if (text.size() <= emitted_) return {};
    std::string fresh = text.substr(emitted_);
    emitted_ = text.size();
    return fresh;
  }

  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;             // bytes of an unfinished character
  std::vector<Tokenizer::Id> ids_;  // decoders that are not byte-level
  std::size_t emitted_ = 0;         // bytes
};

}  // namespace rlalgo::text
