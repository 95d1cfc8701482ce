// Documents by their content: rows of a table name them, so that merging, shuffling, deduplication and splits are those
// of any table and token ids are held once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

// Adds ids, masks and where texts begin.
inline void add_document(core::Digest& digest, const Document& d) {
  const std::int64_t sizes[] = {static_cast<std::int64_t>(d.ids.size()), d.prompt_length.value_or(-1)};
  const auto bytes = [](const auto& list) {
    return std::string_view(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(list.front()));
  };
  digest.add({reinterpret_cast<const char*>(sizes), sizeof(sizes)}).add(bytes(d.ids)).add(bytes(d.loss_mask));
  if (!d.texts.empty()) digest.add(bytes(d.texts));
}

// What documents are, in their order.
[[nodiscard]] inline std::string identity_of(const std::vector<Document>& documents) {
  core::Digest out;
  for (const Document& d : documents) add_document(out, d);
  return out.hex();
}

class DocumentStore {
 public:
  // The row that names it.
  Json put(Document document) {
    std::string name = name_of(document);
    Json row = {{"document", name}};
    documents_.try_emplace(std::move(name), std::move(document));
    return row;
  }
  [[nodiscard]] std::vector<Document> of(const Table& table) const {
    std::vector<Document> out;
    for (std::size_t i = 0; i < table.size(); ++i) {
      out.push_back(documents_.at(table.row(i).at("document").get<std::string>()));
      out.back().row = static_cast<std::int64_t>(i);
    }
    return out;
  }

 private:
  // Two digests: equal names are equal documents.
  static std::string name_of(const Document& d) {
    core::Digest digest;
    add_document(digest, d);
    const std::string half = digest.hex();
    core::Digest other;
    other.add("second half").add(half);
    add_document(other, d);
    return half + other.hex();
  }

  std::unordered_map<std::string, Document> documents_;
};

}  // namespace rlalgo::data
