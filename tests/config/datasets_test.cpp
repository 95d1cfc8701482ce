#include <support/catch.hpp>

#include <filesystem>
#include <string>

#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo;
using assembly::RowColumns;

namespace {

const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

config::RunConfig parse(const std::string& rl, const std::string& more = "") {
  return config::parse_run_config(config::parse_document("base_model: " + quickstart.string() + "\nrl: " + rl +
                                                             "\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 1e-6\n" +
                                                             more,
                                                         "c.yaml"));
}

}  // namespace

TEST_CASE("what a file says of its datasets arrives there") {
  const config::RunConfig run =
      parse("dpo", "val_set_size: 0.25\nshuffle_merged_datasets: false\ndataset_exact_deduplication: true\nseed: 7\n");
  const assembly::DatasetsConfig out = config::datasets_of(run);
  REQUIRE(out.train.size() == 1);
  CHECK(out.train[0].where == "c.yaml:3");
  CHECK(out.held_out == 0.25);
  CHECK_FALSE(out.shuffle);
  CHECK(out.deduplicate);
  CHECK(out.seed == 7);
  CHECK(out.tokenizer.name == quickstart.string());
  CHECK(out.keys.at("seed") == 7);
}

TEST_CASE("how preferences become tokens follows from the recipe and its keys") {
  const assembly::LanguageModel model =
      assembly::load_text_half({.model = {quickstart.string()}}, assembly::find_model({quickstart.string()}));
  const auto dpo = config::preferences_of(parse("dpo", "sequence_len: 9\nexcess_length_strategy: raise\n"), model);
  CHECK(dpo.tokens.family == data::PreferenceFamily::pairs);
  CHECK(dpo.tokens.end == data::EndRule::text);
  CHECK(dpo.tokens.max_length == 9);
  CHECK(dpo.tokens.excess == data::Excess::raise);
  CHECK_FALSE(dpo.prepared);
  const auto orpo = config::preferences_of(parse("orpo", "dataset_prepared_path: there\n"), model);
  CHECK(orpo.tokens.end == data::EndRule::id);
  REQUIRE(orpo.prepared);
  CHECK(orpo.prepared->directory == "there");
  const auto identity = [&](const std::string& more) {
    return config::preferences_of(parse("orpo", "dataset_prepared_path: there\n" + more), model).prepared->identity;
  };
  CHECK(identity("") == orpo.prepared->identity);
  CHECK(identity("seed: 3\n") != orpo.prepared->identity);
  CHECK(identity("sequence_len: 77\n") != orpo.prepared->identity);
  CHECK(config::preferences_of(parse("kto", "micro_batch_size: 2\n"), model).tokens.family ==
        data::PreferenceFamily::unpaired);
}

TEST_CASE("whose the columns of rows are follows from who plays them") {
  config::RunConfig run;
  run.rl = "grpo";
  CHECK(config::columns_of(run) == RowColumns::prompts);
  CHECK(config::prompt_tokens_of(run).without_templates.empty());
  run.trl.tools = {"calculator"};
  CHECK(config::columns_of(run) == RowColumns::players);
  CHECK(config::prompts_of(run).columns_as_data);
  CHECK(config::prompt_tokens_of(run).without_templates.empty());
  run.trl.rollout_func = "mine.play";
  CHECK(config::prompt_tokens_of(run).without_templates == "completions that somebody plays");
  run.nemo_gym.enabled = true;
  CHECK(config::columns_of(run) == RowColumns::gym);
  run.rl = "ebft";
  CHECK(config::prompt_tokens_of(run).without_templates == "rl: ebft");
}
