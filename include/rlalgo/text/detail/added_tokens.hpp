// Tokens that are found in the text itself, before any splitting: chat markers, <think>, padding …
//
// A set of them is matched leftmost-longest through a byte trie. single_word wants no word character beside the match;
// lstrip and rstrip let it swallow the white space beside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/split_pattern.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
};

class AddedTokenMatcher {
 public:
  // What to look for (the token's content, or its normalized content) and the token it means.
  void insert(std::string_view pattern, const AddedToken& token) {
    if (pattern.empty()) return;
    std::size_t node = 0;
    starts_[static_cast<std::uint8_t>(pattern[0])] = true;
    for (const char byte : pattern) {
      std::size_t next = child(node, byte);
      if (next == 0) {
        next = nodes_.size();
        nodes_[node].children.emplace_back(byte, next);
        nodes_.emplace_back();
      }
      node = next;
    }
    nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(token);
  }

  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }

  // Calls text(span) for stretches without added tokens and token(id) for the tokens between them, in order.
  template <class Text, class Token>
  void split(std::string_view input, Text text, Token token) const {
    std::size_t covered = 0;
    for (std::size_t at = 0; at < input.size() && !empty();) {
      if (!starts_[static_cast<std::uint8_t>(input[at])]) {
        ++at;
        continue;
      }
      const auto [found, length] = longest(input.substr(at));
      if (found < 0) {
        ++at;
        continue;
      }
      const AddedToken& added = tokens_[static_cast<std::size_t>(found)];
      std::size_t begin = at, end = at + length;
      at = end;  // matches do not overlap, accepted or not
      if (added.single_word && (word_before(input, begin) || word_after(input, end))) continue;
      if (added.lstrip) {
        while (begin > covered) {
          const std::size_t last = previous_scalar(input, begin);
          if (!is_space(scalar_at(input, last).value)) break;
          begin = last;
        }
        begin = begin < covered ? covered : begin;
      }
      while (added.rstrip && end < input.size()) {
        const Scalar scalar = scalar_at(input, end);
        if (!is_space(scalar.value)) break;
        end += scalar.length;
      }
      if (covered < begin) text(Span{covered, begin});
      token(added.id);
      covered = end;
    }
    if (covered < input.size()) text(Span{covered, input.size()});
  }

 private:
  struct Node {
    std::vector<std::pair<char, std::size_t>> children;
    std::int32_t token = -1;
  };

  [[nodiscard]] std::size_t child(std::size_t node, char byte) const noexcept {
    for (const auto& [edge, next] : nodes_[node].children) {
      if (edge == byte) return next;
    }
    return 0;
  }

  [[nodiscard]] std::pair<std::int32_t, std::size_t> longest(std::string_view input) const noexcept {
    std::pair<std::int32_t, std::size_t> best{-1, 0};
    std::size_t node = 0;
    for (std::size_t i = 0; i < input.size(); ++i) {
      node = child(node, input[i]);
      if (node == 0) break;
      if (nodes_[node].token >= 0) best = {nodes_[node].token, i + 1};
    }
    return best;
  }

  static bool word_before(std::string_view input, std::size_t at) {
    return at > 0 && is_word(scalar_at(input, previous_scalar(input, at)).value);
  }
  static bool word_after(std::string_view input, std::size_t at) {
    return at < input.size() && is_word(scalar_at(input, at).value);
  }

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};
};

}  // namespace rlalgo::text::detail
