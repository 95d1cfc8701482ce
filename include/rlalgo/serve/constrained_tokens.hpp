// Which tokens may come next in a completion whose text is to match an expression, as an edit of the logits.
//
// A token may come when the text with its bytes can still become a match; an end token when the text is one. Where
// nothing may come (the vocabulary lacks a byte), the end may. What a state allows is found once and kept. Any thread.
//
// Lists whose items must differ are kept so beside the expression (unique_items.hpp).
//
// The tokenizer must decode by joining bytes (text::Tokenizer::streams_bytes).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/serve/pattern.hpp>
#include <rlalgo/serve/unique_items.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::serve {

class ConstrainedTokens {
 public:
  // `vocab`: ids of the model; those that the tokenizer does not know may never come.
  ConstrainedTokens(const std::string& expression, text::Tokenizer tokenizer, std::int64_t vocab)
      : pattern_(expression),
        unique_(lists_of(expression)),
        tokenizer_(std::move(tokenizer)),
        vocab_(static_cast<std::size_t>(vocab)) {}

  // Forbids what may not come after `completion`. `ends`: ids that end it.
  void operator()(std::span<float> logits, std::span<const data::TokenId> completion,
                  std::span<const data::TokenId> ends) const {
    Pattern::State state = pattern_.start();
    for (const data::TokenId id : completion) state = pattern_.next(state, tokenizer_.token_bytes(id));
    std::shared_ptr<const std::vector<bool>> allowed = allowed_in(state);
    if (!unique_.empty()) allowed = without_repeats(allowed, state, completion);
    std::vector<float> kept;
    const bool end = pattern_.accepts(state) || !has_any(*allowed, ends);
    for (const data::TokenId id : ends) kept.push_back(logits[static_cast<std::size_t>(id)]);
    for (std::size_t v = 0; v < logits.size(); ++v)
      if (v >= allowed->size() || !(*allowed)[v]) logits[v] = forbidden;
    for (std::size_t i = 0; i < ends.size(); ++i) logits[static_cast<std::size_t>(ends[i])] = end ? kept[i] : forbidden;
  }

 private:
  static constexpr float forbidden = -1e30f;
  static constexpr std::size_t most_kept = 2000;

  static bool has_any(const std::vector<bool>& allowed, std::span<const data::TokenId> ends) {
    auto count = std::count(allowed.begin(), allowed.end(), true);
    for (const data::TokenId id : ends)
      if (static_cast<std::size_t>(id) < allowed.size() && allowed[static_cast<std::size_t>(id)]) --count;
    return count > 0;
  }

  [[nodiscard]] static std::vector<UniqueItems::Path> lists_of(const std::string& expression) {
    const std::size_t mark = expression.find(detail::lists_mark);
    if (mark == std::string::npos) return {};
    return data::Json::parse(expression.substr(mark + 1)).get<std::vector<UniqueItems::Path>>();
  }

  // Without the tokens that make an item of a list come twice, or that leave one which must.
  [[nodiscard]] std::shared_ptr<const std::vector<bool>> without_repeats(
      const std::shared_ptr<const std::vector<bool>>& allowed, Pattern::State state,
      std::span<const data::TokenId> completion) const {
    std::string text;
    for (const data::TokenId id : completion) text += tokenizer_.token_bytes(id);
    const UniqueItems::Place place = unique_.read(text);
    if (!UniqueItems::watched(place)) return allowed;
    auto out = std::make_shared<std::vector<bool>>(*allowed);
    const bool may_repeat = UniqueItems::begins_used(place);
    for (std::size_t v = 0; v < out->size(); ++v) {
      if (!(*out)[v]) continue;
      const std::string_view bytes = tokenizer_.token_bytes(static_cast<data::TokenId>(v));
      const bool ends = bytes.find_first_of("\",]}") != std::string_view::npos && unique_.repeats(place, bytes);
      const bool text = place.scalar.empty() ? bytes.starts_with('"') : place.scalar.starts_with('"');
      (*out)[v] = !ends && !(may_repeat && UniqueItems::is_used(place, bytes) &&
                             !goes_on(pattern_.next(state, bytes), text ? "\"" : "\",]} "));
    }
    return out;
  }

  // Whether a scalar, which one of `ends` ends, can be longer.
  [[nodiscard]] bool goes_on(Pattern::State state, std::string_view ends) const {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (ends.find(c) == std::string_view::npos && pattern_.next(state, std::string_view(&c, 1)) != Pattern::dead)
        return true;
    }
    return false;
  }

  [[nodiscard]] std::shared_ptr<const std::vector<bool>> allowed_in(Pattern::State state) const {
    const std::lock_guard lock(mutex_);
    if (const auto at = allowed_.find(state); at != allowed_.end()) return at->second;
    auto out = std::make_shared<std::vector<bool>>(vocab_, false);
    const std::size_t known = std::min(vocab_, tokenizer_.vocab_size());
    for (std::size_t v = 0; v < known && state != Pattern::dead; ++v) {
      const std::string_view bytes = tokenizer_.token_bytes(static_cast<data::TokenId>(v));
      (*out)[v] = !bytes.empty() && pattern_.next(state, bytes) != Pattern::dead;
    }
    if (allowed_.size() >= most_kept) allowed_.clear();
    allowed_.emplace(state, out);
    return out;
  }

  Pattern pattern_;
  UniqueItems unique_;
  text::Tokenizer tokenizer_;
  std::size_t vocab_;
  mutable std::mutex mutex_;
  mutable std::map<Pattern::State, std::shared_ptr<const std::vector<bool>>> allowed_;
};

}  // namespace rlalgo::serve
