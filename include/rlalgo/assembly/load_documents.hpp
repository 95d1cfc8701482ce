// Documents of datasets, for blocks at their anchors: loads, tokenizes, merges, shuffles, deduplicates and splits as load_prompts() does;
// then packs, where that is asked for, training and held-out texts apart.
//
// Errors: (usage) [rlalgo.config.34] a dataset's type makes no documents; [.8] (usage) a dataset whose documents are not packed;
// [.36] packing without an end token; those of data/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/dataset_rows.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/document_store.hpp>
#include <rlalgo/data/document_transform.hpp>
#include <rlalgo/data/pack_documents.hpp>
#include <rlalgo/data/split.hpp>

namespace rlalgo::assembly {

struct DocumentsConfig : DatasetsConfig {
  std::int64_t length = 512;    // tokens of a document at most
  bool mask_thinking = false;   // thoughts have no likelihood term
  data::Json kwargs = nullptr;  // variables of chat templates
  bool pack = false;            // texts follow each other in documents of that length
  bool apart = false;           // packed texts do not see each other
  std::string pack_where = {};  // the place that asks for it, for error texts
};

struct Documents {
  std::vector<data::Document> train = {}, evaluation = {};
  std::vector<std::string> notes = {};  // for the user: what the files hold that is not read
};

namespace detail {

inline data::Table load_documents(const std::vector<data::Dataset>& entries, const std::string& key,
                                  const DocumentsConfig& c, const LanguageModel& model, data::DocumentStore& store,
                                  std::vector<std::string>& notes) {
  const std::vector<std::string>& names = data::document_transform_names();
  const std::string& packable = names.front();
  const auto vocabulary = static_cast<std::int64_t>(model.tokenizer.vocab_size());
  std::vector<data::Table> tables;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string type = entries[i].type.is_string() ? entries[i].type.get<std::string>() : "";
    const std::string where = key + "[" + std::to_string(i) + "].type at " + entries[i].where;
    const bool own = is_python_dataset(entries[i], names, c.search_paths);
    if (!own && std::find(names.begin(), names.end(), type) == names.end()) {
      std::string all;
      for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
      core::raise_usage("config", 34,
                        {.what = "this type does not make the documents that ebft.mode: strided trains on",
                         .found = entries[i].type.is_null() ? "no type" : entries[i].type.dump(),
                         .expected = all,
                         .where = where});
    }
    if (c.pack && type != packable)
      core::raise_usage("config", 8,
                        {.what = "ebft.pack_documents is for texts without a prompt",
                         .found = type,
                         .expected = packable,
                         .where = where,
                         .remedy = "remove ebft.pack_documents"});
    const data::DocumentConfig settings{.length = c.pack ? std::numeric_limits<std::int64_t>::max() : c.length,
                                        .mask_thinking = c.mask_thinking};
    const data::Table rows = own ? load_python_dataset(entries[i], c, notes) : load_rows(entries[i], c.seed, notes);
    const data::DocumentTools tools{
        .encode = [&](const std::string& text, bool special) { return model.tokenizer.encode(text, special); },
        .render = model.renderer(c.kwargs, model.template_of(entries[i]))};
    data::Table out;
    for (std::size_t r = 0; r < rows.size(); ++r)
      out.append(
          core::located(rows.where(r),
                        [&] {
                          return store.put(own ? data::document_of_ids(rows.row(r), rows.where(r), vocabulary, settings)
                                               : data::document_of(type, rows.row(r), rows.where(r), tools, settings));
                        }),
          rows.origin(r));
    tables.push_back(std::move(out));
  }
  return data::merge(tables, {.seed = c.seed, .shuffle = c.shuffle, .shuffle_before = c.shuffle_each});
}

// What ebft.pack_documents puts between texts.
inline data::TokenId separator(const DocumentsConfig& c, const LanguageModel& model) {
  const auto eos = model.tokenizer.eos_id();
  if (!eos)
    core::raise("config", 36,
                {.what = "ebft.pack_documents needs an end token between texts, and the tokenizer has none",
                 .where = model.directory.string(),
                 .remedy = "remove " + std::string("ebft.pack_documents (") + c.pack_where +
                           "), or set eos_token in tokenizer_config.json"});
  return *eos;
}

}  // namespace detail

[[nodiscard]] inline Documents load_documents(const DocumentsConfig& c, const LanguageModel& model) {
  data::DocumentStore store;
  data::HeldOut rows;
  std::vector<std::string> notes;
  rows.train = detail::load_documents(c.train, "datasets", c, model, store, notes);
  if (c.deduplicate) rows.train = data::deduplicated(rows.train);
  if (!c.test.empty()) {
    rows.evaluation = detail::load_documents(c.test, "test_datasets", c, model, store, notes);
    if (c.deduplicate) rows.evaluation = data::deduplicated_against(rows.train, rows.evaluation);
  } else if (c.held_out > 0) {
    rows = data::hold_out(rows.train, c.held_out);
  }
  Documents out{store.of(rows.train), store.of(rows.evaluation), std::move(notes)};
  if (!c.pack) return out;
  const data::PackingConfig packing{.length = c.length, .separator = detail::separator(c, model), .apart = c.apart};
  return {data::pack_documents(out.train, packing), data::pack_documents(out.evaluation, packing),
          std::move(out.notes)};
}

}  // namespace rlalgo::assembly
