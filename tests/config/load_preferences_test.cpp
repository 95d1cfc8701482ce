#include <support/scratch.hpp>

#include <rlalgo/config/load_preferences.hpp>

using namespace rlalgo::config;
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

DatasetConfig entry(const std::string& path) {
  DatasetConfig out;
  out.source.path = path;
  out.place = {.file = "c.yaml", .line = 4, .column = 5};
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
  RunConfig c;
  c.rl = "dpo";
  c.datasets = {entry(scratch.write("rows.jsonl", rows(16)))};
  c.seed = 0;
  c.val_set_size = 0.25;
  const PreferenceData data = rlalgo::config::detail::make_preferences(c, bytes());
  // numpy.random.default_rng(0).permutation(16): 2 11 3 10 0 4 7 5 14 12 6 9 | …
  CHECK(prompts(*data.train) == "cldkaehfomgj");
  CHECK(data.evaluation->examples() == 4);

  c.val_set_size = 0;
  c.shuffle_merged_datasets = false;
  c.dataset_exact_deduplication = true;
  c.datasets.push_back(entry(scratch.write("more.jsonl", rows(18))));
  const PreferenceData merged = rlalgo::config::detail::make_preferences(c, bytes());
  CHECK(merged.train->examples() == 18);
  CHECK(merged.evaluation == nullptr);
}

TEST_CASE("test_datasets lose what training has; kto labels make rows different") {
  const ScratchDirectory scratch;
  RunConfig c;
  c.rl = "dpo";
  c.dataset_exact_deduplication = true;
  c.datasets = {entry(scratch.write("rows.jsonl", rows(3)))};
  c.test_datasets = {entry(scratch.write("test.jsonl", rows(5)))};
  CHECK(rlalgo::config::detail::make_preferences(c, bytes()).evaluation->examples() == 2);
  c.rl = "kto";
  c.test_datasets.clear();
  CHECK(rlalgo::config::detail::make_preferences(c, bytes()).train->examples() == 6);  // pairs, taken apart
}

TEST_CASE("orpo and the cpo family end answers with an id, dpo with text; both are the same here") {
  const ScratchDirectory scratch;
  RunConfig c;
  c.datasets = {entry(scratch.write("rows.jsonl", rows(1)))};
  for (const char* rl : {"dpo", "orpo", "simpo"}) {
    c.rl = rl;
    const PreferenceData data = rlalgo::config::detail::make_preferences(c, bytes());
    const auto completion = data.train->completion(0);
    CHECK(std::string(completion.begin(), completion.end()) == "yes$");
  }
}
