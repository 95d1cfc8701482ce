// A text of strided training as token ids: what is continued at its anchors, and whose likelihood is trained.
//
// A document is one text, or a chunk of several (data/pack_documents.hpp). Texts of a chunk see those before them, unless
// `texts` says where each begins: then each is a text of its own, with positions from 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

struct Document {
  std::int64_t row = 0;                      // in the dataset
  std::vector<TokenId> ids = {};             // no padding
  std::vector<std::uint8_t> loss_mask = {};  // [ids] 1 = its likelihood is trained; index 0 has no predictor
  std::optional<std::int64_t> prompt_length = std::nullopt;  // where the text is prompt and answer
  std::vector<std::int64_t> texts =
      {};  // of a chunk whose texts do not see each other: where they begin, rising from 0
};

// Tokens [begin, end) of a document that see each other.
struct TextSpan {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

[[nodiscard]] inline std::vector<TextSpan> text_spans(const Document& document) {
  const auto size = static_cast<std::int64_t>(document.ids.size());
  if (document.texts.empty()) return {{0, size}};
  std::vector<TextSpan> out;
  for (std::size_t i = 0; i < document.texts.size(); ++i)
    out.push_back({document.texts[i], i + 1 < document.texts.size() ? document.texts[i + 1] : size});
  return out;
}

}  // namespace rlalgo::data
