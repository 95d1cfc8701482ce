#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/places.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;
using config::ReadPlace;

namespace {

// "same", "inside", "around" or "" for a directory that is written and one place that is read.
std::string overlap(const fs::path& written, const ReadPlace& read) {
  try {
    config::refuse_overlap("output_dir", written, std::span(&read, 1), "config.yaml:3");
  } catch (const core::UsageError& error) {
    const std::string text = error.what();
    CHECK_THAT(text,
               Catch::Contains("[rlalgo.config.31]") && Catch::Contains(read.what) && Catch::Contains("config.yaml:3"));
    return text.find("is the directory of") != std::string::npos ? "same"
           : text.find("contains") != std::string::npos          ? "around"
                                                                 : "inside";
  }
  return "";
}

}  // namespace

TEST_CASE("a directory that is read is out of bounds, however it is spelled") {
  const support::ScratchDirectory scratch;
  const fs::path root = scratch.path(), model = root / "models" / "base";
  fs::create_directories(model / "deep");
  fs::create_directories(root / "out");
  fs::create_directory_symlink(model, root / "link");
  fs::create_directory_symlink(root / "link", root / "link2");
  fs::create_directory_symlink(root / "models", root / "up");
  const ReadPlace base{"base_model", model};
  for (const fs::path& same : {model, model / "", model / ".", root / "out/../models/base", root / "link",
                               root / "link2" / ".", root / "up/base", model / "deep/..", model / "no/such/../.."}) {
    INFO(same);
    CHECK(overlap(same, base) == "same");
  }
  for (const fs::path& inside : {model / "out", model / "deep", root / "link/new/out", root / "up/base/x"})
    CHECK(overlap(inside, base) == "inside");
  for (const fs::path& around : {root / "models", root, root / "up", fs::path("/")})
    CHECK(overlap(around, base) == "around");
  for (const fs::path& apart : {root / "out", root / "models" / "base2", root / "models" / "bas", root / "base"})
    CHECK(overlap(apart, base).empty());
  CHECK(overlap(root / "link", {"base_model", root / "up" / "base"}) == "same");
  const fs::path before = fs::current_path();
  fs::current_path(root);
  CHECK(overlap("models/base", base) == "same");
  CHECK(overlap(".", base) == "around");
  CHECK(overlap("./out", {"base_model", "models/base"}).empty());
  fs::current_path(model);
  CHECK(overlap(".", base) == "same");
  CHECK(overlap("out", base) == "inside");
  fs::current_path(before);
}

TEST_CASE("beside a file that is read there is room, above it there is none") {
  const support::ScratchDirectory scratch;
  const std::string file = scratch.write("data/rows.jsonl", "{}");
  const ReadPlace rows{"the dataset", file};
  CHECK(overlap(scratch.path() / "data", rows) == "around");
  CHECK(overlap(scratch.path(), rows) == "around");
  CHECK(overlap(scratch.path() / "data" / "out", rows).empty());
  CHECK(overlap(scratch.path() / "out", rows).empty());
  const ReadPlace adapter{"the adapter", scratch.path() / "data", true};
  CHECK(overlap(scratch.path() / "data" / "merged", adapter).empty());
  CHECK(overlap(scratch.path() / "data", adapter) == "same");
  CHECK(overlap(scratch.path(), adapter) == "around");
}

TEST_CASE("every place that a configuration reads is looked at") {
  const support::ScratchDirectory scratch;
  const auto directory = [&](const std::string& name) {
    scratch.write(name + "/config.json", "{}");
    return (scratch.path() / name).string();
  };
  config::RunConfig run;
  run.base_model = directory("base");
  run.output_dir = (scratch.path() / "out").string();
  run.datasets.push_back({.source = {.path = scratch.write("data/train.jsonl", "{}\n")}});
  run.test_datasets.push_back({.source = {.path = directory("heldout")}});
  run.tokenizer_config = directory("tokenizer");
  run.lora_model_dir = directory("adapter");
  run.trl.reward_funcs = {"builtin.gsm8k_accuracy", directory("judge")};
  CHECK_NOTHROW(config::check_places(run));
  for (const char* name : {"base", "data", "heldout", "tokenizer", "adapter", "judge"}) {
    config::RunConfig wrong = run;
    wrong.output_dir = (scratch.path() / name).string();
    INFO(name);
    CHECK_THROWS_WITH(config::check_places(wrong),
                      Catch::Contains("[rlalgo.config.31]") && (Catch::Contains("output_dir is the directory of") ||
                                                                Catch::Contains("output_dir contains")));
  }
  config::RunConfig prepared = run;
  prepared.preference.dataset_prepared_path = (scratch.path() / "data").string();
  CHECK_NOTHROW(config::check_places(prepared));
  prepared.preference.dataset_prepared_path = run.base_model;
  CHECK_THROWS_WITH(config::check_places(prepared), Catch::Contains("dataset_prepared_path is the directory of"));
}

TEST_CASE("all that is not there is said at once") {
  const support::ScratchDirectory scratch;
  const std::string text = "base_model: " + (scratch.path() / "none").string() +
                           "\nrl: grpo\nlearning_rate: 1e-5\nmicro_batch_size: 8\ndatasets:\n  - path: missing.jsonl\n "
                           " - path: other.jsonl\noutput_dir: " +
                           (scratch.path() / "out").string() +
                           "\ntokenizer_config: nowhere\ntrl: {reward_funcs: [org/judge]}\n";
  const std::string file = scratch.write("c.yaml", text);
  const auto error = [&] {
    return support::raised_by([&] {
      (void)config::load_run_config(file, {}, 1, [](const config::RunConfig& run, config::Refusals& refusals) {
        config::judge_places(run, refusals);
      });
    });
  };
  CHECK(support::lacks(error(), {"config.45", "5 problems", "config.20", "c.yaml:1", "data.1", "missing.jsonl",
                                 "c.yaml:6", "other.jsonl", "c.yaml:7", "nowhere", "org/judge"}) == "");
  scratch.write("c.yaml", text + "logging_steps: -1\n");
  CHECK(support::lacks(error(), {"6 problems", "config.6", "logging_steps"}) == "");
  scratch.write("out", "a file");
  config::RunConfig run;
  run.output_dir = (scratch.path() / "out").string();
  config::Refusals refusals;
  config::judge_outputs(run, refusals);
  CHECK(support::lacks(support::raised_by([&] { refusals.raise(); }), {"os.1", "out"}) == "");
}

TEST_CASE("a schedule that cannot be recorded or read is known before anything is loaded") {
  const support::ScratchDirectory scratch;
  config::RunConfig run;
  run.base_model = scratch.path().string();
  run.output_dir = (scratch.path().parent_path() / "rlalgo-test-nowhere").string();
  run.trl.async_prefetch = true;
  run.trl.async_schedule = "record";
  CHECK_NOTHROW(config::check_places(run));  // in output_dir
  run.trl.async_schedule_file = (scratch.path() / "none" / "calls").string();
  CHECK_THROWS_WITH(config::check_places(run), Catch::Contains("[rlalgo.sync.7]") && Catch::Contains("none/calls"));
  run.trl.async_schedule_file = (scratch.path() / "calls").string();
  CHECK_NOTHROW(config::check_places(run));
  run.trl.async_schedule = "recorded";
  CHECK_THROWS_WITH(config::check_places(run), Catch::Contains("[rlalgo.sync.5]"));
  run.trl.async_prefetch = false;
  CHECK_NOTHROW(config::check_places(run));
}

TEST_CASE("the base of an adapter that stands for base_model is a place, too") {
  const support::ScratchDirectory scratch;
  fs::create_directories(scratch.path() / "base");
  scratch.write("adapter/adapter_config.json",
                R"({"base_model_name_or_path": ")" + (scratch.path() / "base").string() + R"(", "peft_type": "LORA"})");
  config::RunConfig run;
  run.base_model = (scratch.path() / "adapter").string();
  run.output_dir = (scratch.path() / "base").string();
  CHECK_THROWS_WITH(config::check_places(run), Catch::Contains("the base model of base_model"));
}
