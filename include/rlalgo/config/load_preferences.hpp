// The preference data that a configuration names: load, transform, tokenize, filter, merge, shuffle, deduplicate,
// split.
//
// Order as in axolotl: every entry is loaded, transformed and filtered by length; the entries are merged and shuffled
// with `seed`; exact duplicates are dropped; the last ⌈val_set_size·n⌉ examples are held out, or test_datasets are read
// by the same rules and lose the rows that training has.
//
// Errors: those of data/load.hpp, data/preference_transform.hpp, data/preference_tokens.hpp and data/split.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/data/numpy_permutation.hpp>
#include <rlalgo/data/preference_tokens.hpp>
#include <rlalgo/data/preference_transform.hpp>
#include <rlalgo/data/split.hpp>

namespace rlalgo::config {

struct PreferenceData {
  std::shared_ptr<data::AnswerSet> train;
  std::shared_ptr<data::AnswerSet> evaluation;  // null: no evaluation data
  std::vector<std::string> notes;               // for the user: what was read, cut and dropped
  bool prepared = false;                        // read from dataset_prepared_path
};

[[nodiscard]] inline data::PreferenceFamily preference_family(const RunConfig& c) {
  if (c.rl == "kto") return data::PreferenceFamily::unpaired;
  return c.rl == "orpo" ? data::PreferenceFamily::odds : data::PreferenceFamily::pairs;
}

[[nodiscard]] inline data::TextTools text_tools(const LanguageModel& model, const data::Json& kwargs = nullptr) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  return {.encode = [&tokenizer](const std::string& text, bool special) { return tokenizer.encode(text, special); },
          .decode = [&tokenizer](std::span<const data::TokenId> ids) { return tokenizer.decode(ids, false); },
          .render = [&model, kwargs](const data::Json& messages,
                                     bool prompt) { return model.render(messages, prompt, kwargs); },
          .bos = tokenizer.bos_id(),
          .eos = tokenizer.eos_id(),
          .eos_text = tokenizer.eos_token()};
}

namespace detail {

// The examples of a `datasets` list in their final order.
struct Examples {
  std::vector<data::Table> tables;                              // transformed rows of each entry
  std::vector<data::AnswerSet> answers;                         // of each entry
  std::vector<std::pair<std::size_t, std::size_t>> order = {};  // (entry, example)

  [[nodiscard]] std::string text(const std::pair<std::size_t, std::size_t>& at) const {
    const data::AnswerSet& set = answers[at.first];
    const auto row = static_cast<std::size_t>(set.row(at.second * set.per_example()));
    return data::detail::canonical_text(tables[at.first].row(row)) +
           (set.per_example() == 1 && set.desirable(at.second) ? "+" : "-");
  }
};

inline void note_counts(const data::TokenizeCounts& n, const std::string& key, bool unpaired,
                        std::vector<std::string>& notes) {
  const auto say = [&](std::int64_t count, const std::string& what) {
    if (count > 0) notes.push_back(key + ": " + std::to_string(count) + " of " + std::to_string(n.rows) + " " + what);
  };
  say(n.too_long, "rows dropped, longer than sequence_len (excess_length_strategy)");
  say(n.truncated, "answers cut to fit sequence_len");
  say(n.prompt_fills, "rows dropped, the prompt alone fills sequence_len");
  say(n.cut, "sequences cut to sequence_len");
  say(n.identical, "pairs have the same chosen and rejected answer; they teach nothing");
  const std::int64_t kept = n.rows - n.too_long - n.prompt_fills;
  if (unpaired && (n.desirable == 0 || n.desirable == kept))
    notes.push_back(key + ": warning: all rows have the label " + (n.desirable == 0 ? "false" : "true"));
}

inline std::vector<std::pair<std::size_t, std::size_t>> permuted(
    const std::vector<std::pair<std::size_t, std::size_t>>& order, std::uint64_t seed) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  out.reserve(order.size());
  for (const std::size_t i : data::numpy_permutation(order.size(), seed)) out.push_back(order[i]);
  return out;
}

inline Examples load_examples(const std::vector<DatasetConfig>& entries, const std::string& key, const RunConfig& c,
                              const data::TextTools& tools, std::vector<std::string>& notes) {
  const PreferenceConfig& p = c.preference;
  const data::PreferenceFamily family = preference_family(c);
  const bool end_id = c.rl == "orpo" || c.rl == "simpo" || c.rl == "cpo";
  const data::TokenizeConfig settings{.family = family,
                                      .end = end_id ? data::EndRule::id : data::EndRule::text,
                                      .max_length = p.sequence_len,
                                      .excess = p.excess_length_strategy == "raise"      ? data::Excess::raise
                                                : p.excess_length_strategy == "truncate" ? data::Excess::truncate
                                                                                         : data::Excess::drop,
                                      .filter = !p.skip_prepare_dataset,
                                      .keep_end = p.truncation_mode == "keep_end"};
  Examples out;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string name = key + "[" + std::to_string(i) + "]";
    const data::RowTransform transform = data::make_preference_transform(
        entries[i].type, family, entries[i].fields, tools.render, name + ".type at " + entries[i].place.text());
    data::Table table = data::load(entries[i].source);
    data::transform_rows(transform, table);
    data::TokenizeCounts counts;
    out.answers.push_back(data::tokenize_preferences(table, settings, tools, counts, name));
    out.tables.push_back(std::move(table));
    note_counts(counts, name, family == data::PreferenceFamily::unpaired, notes);
    std::vector<std::pair<std::size_t, std::size_t>> order;
    for (std::size_t e = 0; e < out.answers.back().examples(); ++e) order.emplace_back(i, e);
    if (c.shuffle_before_merging_datasets && entries.size() > 1) order = permuted(order, c.seed);
    out.order.insert(out.order.end(), order.begin(), order.end());
  }
  if (c.shuffle_merged_datasets) out.order = permuted(out.order, c.seed);
  return out;
}

// Drops examples whose row was seen before.
inline void drop_seen(Examples& examples, std::unordered_set<std::string>& seen, const std::string& key,
                      std::vector<std::string>& notes) {
  const std::size_t before = examples.order.size();
  std::erase_if(examples.order, [&](const auto& at) { return !seen.insert(examples.text(at)).second; });
  notes.push_back(key + ": " + std::to_string(before - examples.order.size()) + " duplicate rows dropped");
}

inline std::shared_ptr<data::AnswerSet> packed(const Examples& examples, std::size_t begin, std::size_t end) {
  auto out = std::make_shared<data::AnswerSet>(examples.answers.front().per_example());
  for (std::size_t i = begin; i < end; ++i)
    out->append(examples.answers[examples.order[i].first], examples.order[i].second);
  return out;
}

}  // namespace detail

namespace detail {

[[nodiscard]] inline PreferenceData make_preferences(const RunConfig& c, const data::TextTools& tools) {
  PreferenceData out;
  std::unordered_set<std::string> seen;
  detail::Examples train = detail::load_examples(c.datasets, "datasets", c, tools, out.notes);
  if (c.dataset_exact_deduplication) detail::drop_seen(train, seen, "datasets", out.notes);
  std::size_t end = train.order.size();
  if (!c.test_datasets.empty()) {
    detail::Examples test = detail::load_examples(c.test_datasets, "test_datasets", c, tools, out.notes);
    if (c.dataset_exact_deduplication) detail::drop_seen(test, seen, "test_datasets", out.notes);
    if (!test.order.empty()) out.evaluation = detail::packed(test, 0, test.order.size());
  } else if (c.val_set_size > 0) {
    const auto held_out = static_cast<std::size_t>(std::ceil(c.val_set_size * static_cast<double>(end)));
    if (held_out >= end)
      core::raise("data", 13,
                  {.what = "val_set_size leaves no row to train on",
                   .found = std::to_string(end) + " rows, of which " + std::to_string(held_out) + " are held out",
                   .where = "val_set_size",
                   .remedy = "lower val_set_size or add rows"});
    out.evaluation = detail::packed(train, end - held_out, end);
    end -= held_out;
  }
  out.train = detail::packed(train, 0, end);
  out.notes.insert(out.notes.begin(),
                   std::to_string(out.train->examples()) + (c.rl == "kto" ? " rows" : " pairs") + " to train on" +
                       (out.evaluation ? ", " + std::to_string(out.evaluation->examples()) + " held out" : ""));
  return out;
}

// Everything that decides what the tokens are: settings, data files, tokenizer, chat template.
[[nodiscard]] inline std::string preparation_key(const RunConfig& c, const LanguageModel& model) {
  const PreferenceConfig& p = c.preference;
  data::Digest digest;
  digest.add(c.rl + "|" + p.excess_length_strategy + "|" + p.truncation_mode)
      .add(std::to_string(p.sequence_len) + "|" + std::to_string(p.skip_prepare_dataset))
      .add(std::to_string(c.seed) + "|" + std::to_string(c.val_set_size))
      .add(std::to_string(c.shuffle_merged_datasets) + std::to_string(c.shuffle_before_merging_datasets) +
           std::to_string(c.dataset_exact_deduplication))
      .add(c.trl.chat_template_kwargs.dump())
      .add(model.chat_template ? model.chat_template->source() : "");
  data::add_file(digest, model.directory / "tokenizer.json");
  data::add_file(digest, model.directory / "tokenizer_config.json");
  for (const auto* entries : {&c.datasets, &c.test_datasets}) {
    digest.add(std::to_string(entries->size()));
    for (const DatasetConfig& entry : *entries) {
      const data::DatasetSource& from = entry.source;
      const data::MessageFields& f = entry.fields;
      digest.add(entry.type.dump()).add(from.path + "|" + from.split + "|" + from.ds_type + "|" + from.field);
      digest.add(f.messages + "|" + f.chosen + "|" + f.rejected + "|" + f.role + "|" + f.content);
      for (const auto& [source, target] : f.roles) digest.add(source + "|" + target);
      for (const auto& [split, files] : data::detail::files_of(from))
        for (const std::filesystem::path& file : files) data::add_file(digest, file);
    }
  }
  return digest.hex();
}

}  // namespace detail

// The data; read from dataset_prepared_path where it was prepared before, and kept there for the next run.
[[nodiscard]] inline PreferenceData load_preferences(const RunConfig& c, const LanguageModel& model,
                                                     const data::TextTools& tools) {
  if (!c.preference.dataset_prepared_path || c.preference.skip_prepare_dataset)
    return detail::make_preferences(c, tools);
  const std::string key = detail::preparation_key(c, model);
  const std::filesystem::path file =
      std::filesystem::path(*c.preference.dataset_prepared_path) / ("answers-" + key + ".bin");
  if (auto known = data::read_prepared(file, key)) {
    PreferenceData out;
    out.train = std::make_shared<data::AnswerSet>(std::move(known->train));
    if (!known->evaluation.empty()) out.evaluation = std::make_shared<data::AnswerSet>(std::move(known->evaluation));
    out.notes = std::move(known->notes);
    out.notes.push_back("read from " + file.string());
    out.prepared = true;
    return out;
  }
  PreferenceData out = detail::make_preferences(c, tools);
  data::write_prepared(
      file, key, {*out.train, out.evaluation ? *out.evaluation : data::AnswerSet(out.train->per_example()), out.notes});
  return out;
}

}  // namespace rlalgo::config
