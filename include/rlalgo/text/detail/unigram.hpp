// The unigram language model's segmentation of one pre-token.
//
//   the split w₁ … w_k of the text that maximises Σ log p(wᵢ), found by dynamic programming over character boundaries
//
// Source: Kudo 2018 (arXiv 1804.10959), equation 3. As the tokenizers library does it: a character that is no token
// costs the lowest score of the vocabulary − 10; among equal sums the one with the longest last piece;
// neighbouring unknown characters are one unknown token, or with byte fallback their bytes' <0xHH> tokens.
// Scores are natural logarithms in double precision. encode() is const and safe to call from many threads at once.
//
// Errors: [rlalgo.text.5] an unknown character, and the model has neither unknown token nor byte tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/bpe.hpp>
#include <rlalgo/text/detail/string_table.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

class Unigram {
 public:
  using Id = std::int32_t;

  Unigram() = default;
  // The position of a token in `vocabulary` is its id; of equal tokens the last one counts. unknown: -1 = none.
  Unigram(const std::vector<std::pair<std::string, std::int64_t>>& vocabulary, std::vector<double> scores, Id unknown,
          bool byte_fallback)
      : scores_(std::move(scores)), unknown_(unknown), byte_fallback_(byte_fallback) {
    for (const auto& [token, unused] : vocabulary)  // first, so that a token replaces what begins another
      for (std::size_t end = 0; end < token.size();) {
        end += scalar_at(token, end).length;
        table_.insert(std::string_view(token).substr(0, end), beginning);
      }
    for (std::size_t id = 0; id < vocabulary.size(); ++id)
      if (!vocabulary[id].first.empty()) table_.insert(vocabulary[id].first, static_cast<Id>(id) + 1);
    lowest_ = scores_.empty() ? 0.0 : *std::min_element(scores_.begin(), scores_.end());
  }

  [[nodiscard]] Id find(std::string_view token) const noexcept { return std::max(table_.find(token), 0) - 1; }

  void encode(std::string_view piece, std::vector<Id>& out) const {
    std::vector<Node> nodes(piece.size() + 1);
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t next = at + scalar_at(piece, at).length;
      const auto offer = [&](std::size_t end, Id id, double score) {
        Node& node = nodes[end];
        if (node.from != nowhere && score + nodes[at].score <= node.score) return;
        node = {score + nodes[at].score, at, id};
      };
      bool known = false;  // whether the first character alone is a token
      for (std::size_t end = next;; end += scalar_at(piece, end).length) {
        const Id found = table_.find(piece.substr(at, end - at));
        if (found < 0) break;  // nothing begins like this
        if (found != beginning) {
          offer(end, found - 1, scores_[static_cast<std::size_t>(found - 1)]);
          known = known || end == next;
        }
        if (end == piece.size()) break;
      }
      if (!known) offer(next, unknown_, lowest_ - unknown_penalty);
      at = next;
    }
    std::vector<std::size_t> ends;  // of the pieces of the best split, the last one first
    for (std::size_t end = piece.size(); end > 0; end = nodes[end].from) ends.push_back(end);
    const auto is_unknown = [&](std::size_t i) { return nodes[ends[i]].id == unknown_ && unknown_ >= 0; };
    for (std::size_t i = ends.size(); i-- > 0;) {
      const std::size_t begin = nodes[ends[i]].from;
      while (i > 0 && is_unknown(i) && is_unknown(i - 1)) --i;
      emit(piece.substr(begin, ends[i] - begin), out);
    }
  }

 private:
  static constexpr double unknown_penalty = 10.0;
  static constexpr Id beginning = 0;  // in the table: begins a token and is none
  static constexpr std::size_t nowhere = ~std::size_t{0};

  // The best split that ends here.
  struct Node {
    double score = 0.0;
    std::size_t from = nowhere;
    Id id = -1;
  };

  void emit(std::string_view token, std::vector<Id>& out) const {
    if (const Id id = find(token); id >= 0) return out.push_back(id);
    if (byte_fallback_) {
      const std::size_t before = out.size();
      for (const char byte : token) {
        const Id id = find(Bpe::byte_token(static_cast<std::uint8_t>(byte)));
        if (id < 0) break;
        out.push_back(id);
      }
      if (out.size() == before + token.size()) return;
      out.resize(before);
    }
    if (unknown_ < 0)
      core::raise("text", 5,
                  {.what = "a character is no token, and the tokenizer has no unknown token",
                   .found = std::string(token),
                   .where = "model.unk_id in tokenizer.json",
                   .remedy = "use the model's own tokenizer files"});
    out.push_back(unknown_);
  }

  StringTable table_;  // beginnings of tokens → 0, tokens → id + 1
  std::vector<double> scores_;
  double lowest_ = 0.0;
  Id unknown_ = -1;
  bool byte_fallback_ = false;
};

}  // namespace rlalgo::text::detail
