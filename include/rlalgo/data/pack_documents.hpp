// Texts of strided training one after the other, in chunks of equal length.
//
//   text_1 EOS text_2 EOS … text_n EOS, cut every `length` tokens; the last chunk holds what is left
//
// Source: the released code of "Energy-based fine-tuning", arXiv 2603.12248, which pads the last chunk; here it is shorter.
// A text may begin in one chunk and end in another. One that ends with EOS gets no second one, one without tokens is left
// out. Every token is trained as its text has it, separators are trained.
// `apart` (document masking): texts of a chunk do not see each other (Document::texts). The first token of a text then has
// no predictor and is not trained; a text that goes on in the next chunk begins anew there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/data/document.hpp>

namespace rlalgo::data {

struct PackingConfig {
  std::int64_t length = 512;  // tokens of a chunk, at least 1
  TokenId separator = 0;      // EOS
  bool apart = false;
};

// Chunk i has row i.
[[nodiscard]] inline std::vector<Document> pack_documents(const std::vector<Document>& texts,
                                                          const PackingConfig& config) {
  std::vector<Document> out;
  bool begins = false;  // the next token is the first of a text
  const auto add = [&](TokenId id, std::uint8_t trained) {
    if (out.empty() || static_cast<std::int64_t>(out.back().ids.size()) == config.length)
      out.push_back({.row = static_cast<std::int64_t>(out.size())});
    Document& chunk = out.back();
    const bool first = begins || chunk.ids.empty();
    if (config.apart && first) chunk.texts.push_back(static_cast<std::int64_t>(chunk.ids.size()));
    chunk.loss_mask.push_back(config.apart && first ? 0 : trained);
    chunk.ids.push_back(id);
    begins = false;
  };
  for (const Document& text : texts) {
    if (text.ids.empty()) continue;
    begins = true;
    for (std::size_t i = 0; i < text.ids.size(); ++i) add(text.ids[i], text.loss_mask[i]);
    if (text.ids.back() != config.separator) add(config.separator, 1);
  }
  return out;
}

}  // namespace rlalgo::data
