// The preference data of datasets: load, transform, tokenize, filter, merge, shuffle, deduplicate,
// split.
//
// Order as in axolotl: every entry is loaded, transformed and filtered by length; the entries are merged and shuffled
// with `seed`; exact duplicates are dropped; the last ⌈val_set_size·n⌉ examples are held out, or test_datasets are read
// by the same rules and lose the rows that training has.
//
// Errors: [rlalgo.data.13] val_set_size leaves no row to train on; those of data/load.hpp,
// data/preference_transform.hpp, data/preference_tokens.hpp and data/split.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rlalgo/assembly/dataset_rows.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/numpy_permutation.hpp>
#include <rlalgo/data/preference_tokens.hpp>
#include <rlalgo/data/preference_transform.hpp>
#include <rlalgo/data/prepare_answers.hpp>
#include <rlalgo/data/row_stream.hpp>
#include <rlalgo/data/unread_columns.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/os/outside.hpp>
#include <rlalgo/run/outside.hpp>

namespace rlalgo::assembly {

struct PreferenceData {
  std::shared_ptr<data::AnswerSet> train = {};
  std::shared_ptr<data::AnswerSet> evaluation = {};  // null: no evaluation data
  std::vector<std::string> notes = {};               // for the user: what was read, cut and dropped
  bool prepared = false;                             // read from PreparedConfig::directory
  std::optional<os::Outside> outside = {};           // what they were prepared with, where that is not the run's own
};

// Rows that are prepared once and read by the runs that follow.
struct PreparedConfig {
  std::filesystem::path directory = {};
  bool keeps = true;  // false: what is not there yet is made in memory only
  std::vector<std::string> identity =
      {};                    // everything that decides what the tokens are, beside the files and chat templates
  os::Outside outside = {};  // time, host and language of the run, kept with the rows
  bool goes_on = false;      // the run has them of its checkpoint: rows of another time are made again where they tell
};

struct PreferencesConfig : DatasetsConfig {
  data::TokenizeConfig tokens = {};  // family, end, lengths
  std::filesystem::path arena = {};  // token ids lie in a file of this directory; empty: in memory
  data::Json kwargs = nullptr;       // variables of chat templates
  double desirable_weight = 1.0, undesirable_weight = 1.0;  // of the loss on unpaired rows
  std::optional<PreparedConfig> prepared = {};
};

// `model` must outlive them.
[[nodiscard]] inline data::TextTools text_tools(const LanguageModel& model, const data::Json& kwargs = nullptr) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  return {.encode = [&tokenizer](const std::string& text, bool special) { return tokenizer.encode(text, special); },
          .decode = [&tokenizer](std::span<const data::TokenId> ids) { return tokenizer.decode(ids, false); },
          .render = model.renderer(kwargs),
          .bos = tokenizer.bos_id(),
          .eos = tokenizer.eos_id(),
          .eos_text = tokenizer.eos_token()};
}

// Told what is being prepared and how many rows of it are done.
using RowProgress = std::function<void(const std::string& what, std::int64_t rows)>;

namespace detail {

// How the messages of an entry's rows are rendered, where that is another way than the run's; null: it is not.
using EntryRender = std::function<data::Render(const data::Dataset& entry)>;

// The examples of a `datasets` list and their final order.
struct Examples {
  data::AnswerSet answers;
  std::vector<data::RowDigest> digests = {};  // [examples], or empty unless duplicates are dropped
  std::vector<std::size_t> order = {};
};

inline void note_counts(const data::TokenizeCounts& n, const std::string& key, data::PreferenceFamily family,
                        std::vector<std::string>& notes) {
  const auto say = [&](std::int64_t count, std::int64_t all, const std::string& what) {
    if (count > 0) notes.push_back(key + ": " + std::to_string(count) + " of " + std::to_string(all) + " " + what);
  };
  say(n.too_long, n.rows, "rows dropped, longer than sequence_len (excess_length_strategy)");
  say(n.truncated, n.answers, "answers cut to fit sequence_len");
  say(n.prompt_fills, n.rows, "rows dropped, the prompt alone fills sequence_len");
  say(n.cut, n.answers, "sequences cut to sequence_len");
  say(n.identical, n.rows, "pairs have the same chosen and rejected answer; they teach nothing");
  if (family != data::PreferenceFamily::unpaired) return;
  if (n.desirable == 0 || n.desirable == n.kept)
    notes.push_back(key + ": warning: all rows have the label " + (n.desirable == 0 ? "false" : "true"));
}

// The weights of KTO should even out the classes: λ_D·n_D / (λ_U·n_U) between 1 and 1.33. Source: Ethayarajh et al.,
// arXiv 2402.01306, eq. 8.
inline void note_balance(const data::AnswerSet& train, const PreferencesConfig& c, std::vector<std::string>& notes) {
  double desirable = 0;
  for (std::size_t i = 0; i < train.answers(); ++i) desirable += train.desirable(i) ? 1.0 : 0.0;
  const double undesirable = std::max(static_cast<double>(train.answers()) - desirable, 1.0);
  desirable = std::max(desirable, 1.0);
  if (desirable == undesirable) return;
  const double w_d = c.desirable_weight, w_u = c.undesirable_weight;
  const auto rounded = [](double x) { return std::round(x * 100.0) / 100.0; };
  const double low_d = rounded(undesirable * w_u / desirable), high_d = rounded(1.33 * undesirable * w_u / desirable);
  const double low_u = rounded(desirable * w_d / undesirable / 1.33), high_u = rounded(desirable * w_d / undesirable);
  if ((w_d >= low_d && w_d <= high_d) || (w_u >= low_u && w_u <= high_u)) return;
  char text[256];
  std::snprintf(
      text, sizeof text,
      "warning: %.0f desirable and %.0f undesirable rows are not in balance: set kto_desirable_weight between "
      "%.2f and %.2f, or kto_undesirable_weight between %.2f and %.2f",
      desirable, undesirable, low_d, high_d, low_u, high_u);
  notes.emplace_back(text);
}

inline std::vector<std::size_t> permuted(std::span<const std::size_t> order, std::uint64_t seed) {
  std::vector<std::size_t> out;
  out.reserve(order.size());
  for (const std::size_t i : data::numpy_permutation(order.size(), seed)) out.push_back(order[i]);
  return out;
}

// The rows of one entry, and what is still to be done with each.
struct OpenEntry {
  data::RowChunks rows;
  data::RowTransform transform;
  bool of_user = false;  // made by a function of the user's
};

inline OpenEntry open_entry(const data::Dataset& entry, const std::string& name, const PreferencesConfig& c,
                            const data::TextTools& tools, std::vector<std::string>& notes) {
  const data::PreferenceFamily family = c.tokens.family;
  data::Dataset texts = entry;
  texts.source.numbers = false;
  const auto chunks = [](data::Table rows) -> data::RowChunks {
    return [table = std::make_shared<data::Table>(std::move(rows)), at = std::size_t{0}](
               std::size_t limit, std::vector<data::Record>& out) mutable {
      out.clear();
      for (; out.size() < limit && at < table->size(); ++at)
        out.push_back({std::move(table->row(at)), "", table->origin(at)});
      return !out.empty();
    };
  };
  if (is_python_dataset(entry, data::preference_format_names(family), c.search_paths))
    return {chunks(load_python_dataset(texts, c, notes)), [](data::Json&, const std::string&) {}, true};
  if (std::string note = note_of_builtin(entry, c.search_paths); !note.empty()) notes.push_back(std::move(note));
  data::RowTransform transform =
      data::make_preference_transform(entry.type, family, entry.fields, tools.render, name + ".type at " + entry.where);
  if (!entry.shard.whole()) return {chunks(load_rows(texts, c.seed, notes)), std::move(transform)};
  auto stream = std::make_shared<data::RowStream>(noted_source(texts, notes));
  return {[stream](std::size_t limit, std::vector<data::Record>& out) { return stream->next(limit, out); },
          std::move(transform)};
}

inline Examples load_examples(const std::vector<data::Dataset>& entries, const std::string& key,
                              const PreferencesConfig& c, const data::TextTools& tools, const RowProgress& progress,
                              const EntryRender& own, std::vector<std::string>& notes) {
  const data::PreferenceFamily family = c.tokens.family;
  data::PrepareConfig settings{.tokens = c.tokens, .digests = c.deduplicate};
  const data::ArenaConfig arena{.directory = c.arena};
  Examples out{.answers = data::AnswerSet(family == data::PreferenceFamily::unpaired ? 1 : 2,
                                          std::make_shared<data::IdArena>(arena)),
               .digests = {}};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    settings.name = key + "[" + std::to_string(i) + "]";
    settings.progress = [&](std::int64_t rows) {
      os::stop_if_interrupted();
      if (progress) progress(settings.name, rows);
    };
    data::TextTools entry_tools = tools;
    if (own && entries[i].has_template()) entry_tools.render = own(entries[i]);
    settings.tokens.tools_column = entries[i].fields.tools;
    const OpenEntry open = open_entry(entries[i], settings.name, c, entry_tools, notes);
    data::UnreadColumns columns(open.transform, family, settings.tokens.tools_column);
    const std::size_t first = out.answers.examples();
    const data::PreparedRows made =
        data::prepare_answers(columns.watch(open.rows), open.transform, settings, entry_tools, out.answers);
    out.digests.insert(out.digests.end(), made.digests.begin(), made.digests.end());
    note_counts(made.counts, settings.name, family, notes);
    if (const std::string unread = columns.found(); !unread.empty() && !open.of_user)
      notes.push_back(settings.name + ": warning: nothing reads the columns " + unread);
    std::vector<std::size_t> order(out.answers.examples() - first);
    std::iota(order.begin(), order.end(), first);
    if (c.shuffle_each && entries.size() > 1) order = permuted(order, c.seed);
    out.order.insert(out.order.end(), order.begin(), order.end());
  }
  if (c.shuffle) out.order = permuted(out.order, c.seed);
  return out;
}

struct DigestHash {
  std::size_t operator()(const data::RowDigest& digest) const noexcept { return digest[0]; }
};
using Seen = std::unordered_set<data::RowDigest, DigestHash>;

// Drops examples whose row was seen before.
inline void drop_seen(Examples& examples, Seen& seen, const std::string& key, std::vector<std::string>& notes) {
  const std::size_t before = examples.order.size();
  std::erase_if(examples.order, [&](std::size_t at) { return !seen.insert(examples.digests[at]).second; });
  notes.push_back(key + ": " + std::to_string(before - examples.order.size()) + " duplicate rows dropped");
}

inline std::shared_ptr<data::AnswerSet> selected(const Examples& examples, std::span<const std::size_t> order) {
  return std::make_shared<data::AnswerSet>(examples.answers.selected(order));
}

[[nodiscard]] inline PreferenceData make_preferences(const PreferencesConfig& c, const data::TextTools& tools,
                                                     const RowProgress& progress = {}, const EntryRender& own = {}) {
  PreferenceData out;
  Seen seen;
  Examples train = load_examples(c.train, "datasets", c, tools, progress, own, out.notes);
  if (c.deduplicate) drop_seen(train, seen, "datasets", out.notes);
  std::span<const std::size_t> order(train.order);
  if (!c.test.empty()) {
    Examples test = load_examples(c.test, "test_datasets", c, tools, progress, own, out.notes);
    if (c.deduplicate) drop_seen(test, seen, "test_datasets", out.notes);
    if (!test.order.empty()) out.evaluation = selected(test, test.order);
  } else if (c.held_out > 0) {
    const auto held_out = static_cast<std::size_t>(std::ceil(c.held_out * static_cast<double>(order.size())));
    if (held_out >= order.size())
      core::raise(
          "data", 13,
          {.what = "val_set_size leaves no row to train on",
           .found = std::to_string(order.size()) + " rows, of which " + std::to_string(held_out) + " are held out",
           .where = "val_set_size",
           .remedy = "lower val_set_size or add rows"});
    out.evaluation = selected(train, order.last(held_out));
    order = order.first(order.size() - held_out);
  }
  out.train = selected(train, order);
  out.notes.insert(out.notes.begin(),
                   std::to_string(out.train->examples()) + (out.train->per_example() == 1 ? " rows" : " pairs") +
                       " to train on" +
                       (out.evaluation ? ", " + std::to_string(out.evaluation->examples()) + " held out" : ""));
  return out;
}

// Everything that decides what the tokens are: settings, data files, tokenizer, chat template.
[[nodiscard]] inline std::string preparation_key(const PreferencesConfig& c, const LanguageModel& model) {
  core::Digest digest;
  for (const std::string& field : c.prepared->identity) digest.add(field);
  data::add_file(digest, model.directory / "tokenizer.json");
  data::add_file(digest, model.directory / "tokenizer_config.json");
  data::add_file(digest, model.directory / "config.json");  // its model_type names the tokenizer's class
  for (const auto* entries : {&c.train, &c.test}) {
    digest.add(std::to_string(entries->size()));
    for (const data::Dataset& entry : *entries) {
      const data::DatasetSource& from = entry.source;
      const data::MessageFields& f = entry.fields;
      digest.add(entry.type.dump()).add(from.path + "|" + from.split + "|" + from.ds_type + "|" + from.field);
      digest.add(f.messages + "|" + f.chosen + "|" + f.rejected + "|" + f.role + "|" + f.content + "|" + f.tools);
      for (const auto& [target, source] : f.properties) digest.add(target + "|" + source);
      digest.add(std::to_string(entry.shard.index) + "/" + std::to_string(entry.shard.count));
      if (const auto own = model.template_of(entry)) digest.add("template").add(own->source());
      for (const auto& [source, target] : f.roles) digest.add(source + "|" + target);
      if (const std::string function = function_of(entry.type); !function.empty())
        if (const auto file = remote::module_file(function, c.search_paths); !file.empty())
          data::add_file(digest, file);
      for (const auto& [split, files] : data::detail::files_of(from))
        for (const std::filesystem::path& file : files) data::add_file(digest, file);
    }
  }
  return digest.hex();
}

// Whether rows may depend on the time, the host or the language.
[[nodiscard]] inline bool reads_outside(const PreferencesConfig& c, const LanguageModel& model) {
  if (model.chat_template && model.chat_template->reads_clock()) return true;
  if (c.keys.dump().find("strftime_now") != std::string::npos) return true;
  const std::vector<std::string> builtin = data::preference_format_names(c.tokens.family);
  for (const auto* entries : {&c.train, &c.test})
    for (const data::Dataset& entry : *entries) {
      const auto own = model.template_of(entry);
      if (is_python_dataset(entry, builtin, c.search_paths) || (own != nullptr && own->reads_clock())) return true;
    }
  return false;
}

[[nodiscard]] inline PreferenceData find_or_make(const PreferencesConfig& c, const LanguageModel& model,
                                                 const data::TextTools& tools, const RowProgress& progress) {
  const EntryRender own = [&](const data::Dataset& entry) {
    return model.renderer(c.kwargs, model.template_of(entry));
  };
  if (!c.prepared) return make_preferences(c, tools, progress, own);
  const std::string key = preparation_key(c, model);
  const std::filesystem::path file = c.prepared->directory / ("answers-" + key + ".bin");
  auto known = data::read_prepared(file, key);
  const auto then = known ? run::outside_of(data::Json::parse(known->outside, nullptr, false)) : std::nullopt;
  // A run that goes on has rows of its own time: what was prepared at another is made again, if it tells.
  if (known && c.prepared->goes_on && then && *then != c.prepared->outside && reads_outside(c, model)) known.reset();
  if (known) {
    PreferenceData out;
    if (!c.prepared->goes_on) out.outside = then;
    out.train = std::make_shared<data::AnswerSet>(std::move(known->train));
    if (!known->evaluation.empty()) out.evaluation = std::make_shared<data::AnswerSet>(std::move(known->evaluation));
    out.notes = std::move(known->notes);
    out.notes.push_back("read from " + file.string());
    out.prepared = true;
    return out;
  }
  PreferenceData out = make_preferences(c, tools, progress, own);
  if (!c.prepared->keeps) return out;
  data::write_prepared(file, key,
                       {*out.train, out.evaluation ? *out.evaluation : data::AnswerSet(out.train->per_example()),
                        out.notes, run::to_json(c.prepared->outside).dump()});
  return out;
}

}  // namespace detail

// The data; read from PreparedConfig::directory where it was prepared before, and kept there for the next run.
[[nodiscard]] inline PreferenceData load_preferences(const PreferencesConfig& c, const LanguageModel& model,
                                                     const RowProgress& progress = {}) {
  PreferenceData out = detail::find_or_make(c, model, text_tools(model, c.kwargs), progress);
  if (c.tokens.family == data::PreferenceFamily::unpaired) detail::note_balance(*out.train, c, out.notes);
  return out;
}

// Rows as a model sees them, chosen and rejected of a pair after each other.
[[nodiscard]] inline std::function<std::vector<ShownRow>(std::size_t)> rows_of_answers(
    std::shared_ptr<data::AnswerSet> answers) {
  return [answers = std::move(answers)](std::size_t limit) {
    const std::size_t each = answers->per_example();
    std::vector<ShownRow> out;
    for (std::size_t i = 0; i < std::min(limit, answers->examples()) * each; ++i) {
      const data::Answer answer = answers->answer(i);
      const char* const pair = answer.desirable ? "chosen" : "rejected";
      const char* const single = answer.desirable ? "desirable" : "undesirable";
      ShownRow row{.title = (each == 2 ? "pair " : "row ") + std::to_string(answers->row(i)) + ", " +
                            (each == 2 ? pair : single),
                   .ids = {answer.prompt().begin(), answer.prompt().end()},
                   .desirable = answer.desirable};
      row.loss.assign(row.ids.size(), 0);
      row.ids.insert(row.ids.end(), answer.completion().begin(), answer.completion().end());
      row.loss.resize(row.ids.size(), 1);
      out.push_back(std::move(row));
    }
    return out;
  };
}

// What `preprocess --debug` shows.
[[nodiscard]] inline Overview shown_answers(std::shared_ptr<data::AnswerSet> answers, const LanguageModel& model) {
  Overview out;
  out.samples = rows_of_answers(std::move(answers));
  out.decode = [&model](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); };
  return out;
}

}  // namespace rlalgo::assembly
