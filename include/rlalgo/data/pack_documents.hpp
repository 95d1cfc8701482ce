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
[[nodiscard]] std::vector<Document> pack_documents(const std::vector<Document>& texts, const PackingConfig& config);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/pack_documents_impl.hpp>
#endif
