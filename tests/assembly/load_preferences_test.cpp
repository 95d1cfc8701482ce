#include <support/scratch.hpp>

#include <rlalgo/assembly/load_preferences.hpp>

using namespace rlalgo::assembly;
using rlalgo::data::Dataset;
using rlalgo::data::EndRule;
using rlalgo::data::PreferenceFamily;
using rlalgo::support::ScratchDirectory;

namespace {

// Bytes as tokens.
rlalgo::data::TextTools bytes() {
  rlalgo::data::TextTools tools;
  tools.encode = [](const std::string& text, bool) {
    return std::vector<rlalgo::data::TokenId>(text.begin(), text.end());
  };
  tools.decode = [](std::span<const rlalgo::data::TokenId> ids) { return std::string(ids.begin(), ids.end()); };
  tools.eos = '$';
  tools.eos_text = "$";
  return tools;
}

std::string rows(int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += "{\"prompt\": \"q" + std::string(1, static_cast<char>('a' + i)) +
           "\", \"chosen\": \"yes\", \"rejected\": \"no\"}\n";
  return out;
}

Dataset entry(const std::string& path) {
  Dataset out;
  out.source.path = path;
  out.where = "c.yaml:4";
  return out;
}

std::string prompts(const rlalgo::data::AnswerSet& set) {
  std::string out;
  for (std::size_t e = 0; e < set.examples(); ++e) out += static_cast<char>(set.answer(2 * e).ids[1]);
  return out;
}

}  // namespace

TEST_CASE("pairs are shuffled with the seed, the last are held out, duplicates dropped") {
  const ScratchDirectory scratch;
  PreferencesConfig c;
  c.train = {entry(scratch.write("rows.jsonl", rows(16)))};
  c.seed = 0;
  c.held_out = 0.2;  // ⌈3.2⌉
  const PreferenceData data = rlalgo::assembly::detail::make_preferences(c, bytes());
  // numpy.random.default_rng(0).permutation(16): 2 11 3 10 0 4 7 5 14 12 6 9 | …
  CHECK(prompts(*data.train) == "cldkaehfomgj");
  CHECK(data.evaluation->examples() == 4);

  c.held_out = 0;
  c.shuffle = false;
  c.deduplicate = true;
  c.train.push_back(entry(scratch.write("more.jsonl", rows(18))));
  const PreferenceData merged = rlalgo::assembly::detail::make_preferences(c, bytes());
  CHECK(merged.train->examples() == 18);
  CHECK(merged.evaluation == nullptr);
}

TEST_CASE("test_datasets lose what training has; kto labels make rows different") {
  const ScratchDirectory scratch;
  PreferencesConfig c;
  c.deduplicate = true;
  c.train = {entry(scratch.write("rows.jsonl", rows(3)))};
  c.test = {entry(scratch.write("test.jsonl", rows(5)))};
  CHECK(rlalgo::assembly::detail::make_preferences(c, bytes()).evaluation->examples() == 2);
  c.tokens.family = PreferenceFamily::unpaired;
  c.test.clear();
  CHECK(rlalgo::assembly::detail::make_preferences(c, bytes()).train->examples() == 6);  // pairs, taken apart
}

TEST_CASE("answers that are cut are counted out of all answers") {
  const ScratchDirectory scratch;
  PreferencesConfig c;
  c.train = {entry(scratch.write("rows.jsonl", rows(3)))};
  c.tokens.max_length = 5;  // of prompt 2 + chosen 3 or rejected 2, each with an end
  c.tokens.excess = rlalgo::data::Excess::truncate;
  for (const auto family : {PreferenceFamily::pairs, PreferenceFamily::unpaired}) {  // which takes pairs apart
    c.tokens.family = family;
    std::string notes;
    for (const std::string& note : rlalgo::assembly::detail::make_preferences(c, bytes()).notes) notes += note + "\n";
    INFO(notes);
    CHECK(notes.find("datasets[0]: 3 of 6 ") != std::string::npos);
  }
}

TEST_CASE("answers end with an id or with text; both are the same here") {
  const ScratchDirectory scratch;
  PreferencesConfig c;
  c.train = {entry(scratch.write("rows.jsonl", rows(1)))};
  for (const EndRule end : {EndRule::text, EndRule::id}) {
    c.tokens.end = end;
    const PreferenceData data = rlalgo::assembly::detail::make_preferences(c, bytes());
    const auto completion = data.train->completion(0);
    CHECK(std::string(completion.begin(), completion.end()) == "yes$");
  }
}

TEST_CASE("a function of a Python file beside the configuration makes the rows") {
  const ScratchDirectory scratch;
  scratch.write("mine.py",
                "def pairs(cfg, *args, **kwargs):\n"
                "    def row(example):\n"
                "        return {'prompt': cfg.start + example['q'], 'chosen': 'yes', 'rejected': 'no'}\n"
                "    return row, {'remove_columns': ['q']}\n");
  PreferencesConfig c;
  c.search_paths = python_search_paths(scratch.path() / "config.yaml");
  c.keys = {{"start", "x"}};
  c.shuffle = false;
  c.train = {entry(scratch.write("rows.jsonl", "{\"q\": \"a\"}\n{\"q\": \"b\"}\n"))};
  c.train[0].type = "mine.pairs";
  CHECK(prompts(*rlalgo::assembly::detail::make_preferences(c, bytes()).train) == "ab");
  c.train[0].type = "mine.absent";
  CHECK_THROWS_WITH(rlalgo::assembly::detail::make_preferences(c, bytes()), Catch::StartsWith("[rlalgo.remote.41]"));
  c.train[0].type = "chatml.intell";
  CHECK_THROWS_WITH(rlalgo::assembly::detail::make_preferences(c, bytes()), Catch::StartsWith("[rlalgo.data.9]"));
}

TEST_CASE("kto: weights that even out the classes, or a warning that names them") {
  PreferencesConfig c;
  c.tokens.family = PreferenceFamily::unpaired;
  rlalgo::data::AnswerSet set(1);
  const std::vector<rlalgo::data::TokenId> id = {1};
  for (int i = 0; i < 8; ++i) set.append(i, i < 2, id, id);
  const auto notes = [&](double desirable, double undesirable) {
    c.desirable_weight = desirable;
    c.undesirable_weight = undesirable;
    std::vector<std::string> out;
    rlalgo::assembly::detail::note_balance(set, c, out);
    return out.empty() ? std::string() : out.front();
  };
  // 2 desirable, 6 undesirable: λ_D in [3, 3.99] with λ_U = 1, or λ_U in [0.25, 0.33] with λ_D = 1.
  CHECK(rlalgo::support::lacks(
            notes(1, 1), {"2 desirable and 6 undesirable", "between 3.00 and 3.99", "between 0.25 and 0.33"}) == "");
  CHECK(notes(3, 1).empty());
  CHECK(notes(3.99, 1).empty());
  CHECK_FALSE(notes(4.1, 1).empty());
  CHECK_FALSE(notes(2.9, 1).empty());
  CHECK(notes(1, 0.25).empty());
  CHECK(notes(1, 0.33).empty());
  CHECK_FALSE(notes(1, 0.34).empty());
  CHECK_FALSE(notes(1, 0.24).empty());
}
