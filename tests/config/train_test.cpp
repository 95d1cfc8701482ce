#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/config/detail/run_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/train.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {

const fs::path quickstart = fs::path(support::test_dir).parent_path() / "examples" / "quickstart";

// One step of `method` over `dataset` (lines of YAML each), with output_dir below the scratch folder.
config::RunConfig one_step(const support::ScratchDirectory& scratch, const std::string& method,
                           const std::string& dataset) {
  return config::load_run_config(scratch.write(
      "config.yaml", "base_model: " + (quickstart / "model").string() + "\n" + method + "datasets:\n" + dataset +
                         "learning_rate: 1.0e-3\nmax_steps: 1\nwarmup_steps: 0\nsave_strategy: \"no\"\noutput_dir: " +
                         (scratch.path() / "out").string() + "\n"));
}

}  // namespace

TEST_CASE("a configuration trains a method that generates, without the command line") {
  const support::ScratchDirectory scratch;
  const run::Outcome outcome = config::train(one_step(
      scratch,
      "rl: grpo\nmicro_batch_size: 4\ntrl:\n  loss_type: grpo\n  num_generations: 4\n  max_completion_length: 4\n"
      "  reward_funcs: [builtin.gsm8k_format]\n",
      "  - path: " + (quickstart / "data/test.jsonl").string() + "\n    type: rewards.oai_gsm8k_transform\n"));
  CHECK(outcome.step == 1);
  CHECK_FALSE(outcome.interrupted);
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "metrics.jsonl", "report.html"})
    CHECK(fs::exists(scratch.path() / "out" / name));
}

TEST_CASE("a configuration trains on preferences, and says what it prepares") {
  const support::ScratchDirectory scratch;
  std::string rows;
  for (int i = 0; i < 4; ++i)
    rows += R"({"prompt": "1 + )" + std::to_string(i) + R"( =", "chosen": " )" + std::to_string(1 + i) +
            R"(", "rejected": " 9"})" + "\n";
  const config::RunConfig run = one_step(scratch, "rl: dpo\nmicro_batch_size: 2\nsequence_len: 64\n",
                                         "  - path: " + scratch.write("pairs.jsonl", rows) + "\n");
  int prepared = 0;
  std::vector<std::string> notes;
  const run::Outcome outcome = config::train(
      run, {.note = [&](const std::string& text) { notes.push_back(text); }, .prepared = [&] { ++prepared; }});
  CHECK(outcome.step == 1);
  CHECK(prepared == 2);  // the data, the reference
  CHECK(fs::exists(scratch.path() / "out" / "model.safetensors"));
}

TEST_CASE("a prompt without room for a completion is refused with its row") {
  const support::ScratchDirectory scratch;
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "apples ";
  const std::string rows = R"({"prompt": "few"})"
                           "\n"
                           R"({"prompt": ")" +
                           words + "\"}\n";
  CHECK_THROWS_WITH((void)config::train(one_step(
                        scratch,
                        "rl: grpo\nshuffle_merged_datasets: false\nmicro_batch_size: 4\ntrl:\n  num_generations: 4\n"
                        "  max_completion_length: 4\n  reward_funcs: [builtin.gsm8k_format]\n",
                        "  - path: " + scratch.write("prompts.jsonl", rows) + "\n")),
                    Catch::Matchers::Contains("[rlalgo.config.27]") && Catch::Matchers::Contains("prompts.jsonl:2"));
}

TEST_CASE("a synced reference and an adapter: refused before anything is loaded") {
  config::RunConfig c;
  c.rl = "dpo";
  c.preference.sync_ref_model = true;
  const auto check = [&](const assembly::ModelPlaces& places = {}) { config::detail::check_reference(c, places); };
  CHECK_NOTHROW(check());
  CHECK_THROWS_WITH(check({.base = "base", .adapter = "adapter"}), Catch::Contains("[rlalgo.config.8]"));
  c.lora_model_dir = "adapter";
  CHECK_THROWS_WITH(check(), Catch::Contains("sync_ref_model"));
  c.rl = "orpo";  // has no reference
  CHECK_NOTHROW(check());
}
