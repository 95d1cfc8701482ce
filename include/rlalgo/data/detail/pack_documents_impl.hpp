// Definitions of pack_documents.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/pack_documents.hpp>

namespace rlalgo::data {

RLALGO_INLINE std::vector<Document> pack_documents(const std::vector<Document>& texts, const PackingConfig& config) {
  std::vector<TokenId> ids;                 // of all texts and separators
  std::vector<std::uint8_t> masks, firsts;  // likewise; 1 = the first token of a text
  for (const Document& text : texts) {
    if (text.ids.empty()) continue;
    const std::size_t begin = ids.size();
    ids.insert(ids.end(), text.ids.begin(), text.ids.end());
    masks.insert(masks.end(), text.loss_mask.begin(), text.loss_mask.end());
    if (text.ids.back() != config.separator) {
      ids.push_back(config.separator);
      masks.push_back(1);
    }
    firsts.resize(ids.size(), 0);
    firsts[begin] = 1;
  }
  namespace views = ranges::views;
  std::vector<Document> out;
  for (const auto tokens : views::zip(ids, masks, firsts) | views::chunk(config.length)) {
    Document& chunk = out.emplace_back(Document{.row = static_cast<std::int64_t>(out.size())});
    for (const auto& [place, token] : tokens | views::enumerate) {
      const auto& [id, mask, first] = token;
      const bool begins = config.apart && (first == 1 || place == 0);
      if (begins) chunk.texts.push_back(static_cast<std::int64_t>(place));
      chunk.ids.push_back(id);
      chunk.loss_mask.push_back(begins ? 0 : mask);
    }
  }
  return out;
}

}  // namespace rlalgo::data
