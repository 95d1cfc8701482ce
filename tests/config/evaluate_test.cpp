#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <rlalgo/config/evaluate.hpp>
#include <rlalgo/config/parse.hpp>

using namespace rlalgo;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const fs::path quickstart = fs::path(support::test_dir).parent_path() / "examples" / "quickstart";

std::string pairs(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += R"({"prompt": "1 + )" + std::to_string(i % 7) + R"( =", "chosen": " )" + std::to_string(1 + i % 7) +
            R"(", "rejected": " 9 #)" + std::to_string(i) + R"("})" + "\n";
  return rows;
}

// Two steps of DPO that are evaluated and saved after each, and before the first.
config::RunConfig two_steps(const support::ScratchDirectory& scratch,
                            const std::string& more = "val_set_size: 0.25\n") {
  return config::load_run_config(scratch.write(
      "config.yaml",
      "base_model: " + (quickstart / "model").string() +
          "\nrl: dpo\nmicro_batch_size: 2\nsequence_len: 64\ndatasets:\n  - path: " +
          scratch.write("pairs.jsonl", pairs(12)) +
          "\nlearning_rate: 1.0e-3\nlr_scheduler: constant\nmax_steps: 2\nsave_steps: 1\nfloat32: true\noutput_dir: " +
          (scratch.path() / "out").string() + "\n" + more));
}

// What a training logged at evaluations, by step, without the tokens that it had trained on.
std::map<std::int64_t, run::Record> logged(const fs::path& output) {
  std::map<std::int64_t, run::Record> out;
  std::ifstream lines(output / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    if (const run::Json json = run::Json::parse(line); json.contains("eval_loss"))
      std::erase_if((out[json.at("step")] = run::to_record(json)).values,
                    [](const auto& value) { return value.first == "eval_num_tokens"; });
  return out;
}

void check_equal(const run::Record& evaluated, const run::Record& trained) {
  CHECK(evaluated.step == trained.step);
  CHECK(evaluated.epoch == trained.epoch);
  REQUIRE(evaluated.values.size() == trained.values.size());
  for (std::size_t i = 0; i < evaluated.values.size(); ++i) {
    INFO(evaluated.values[i].first);
    CHECK(evaluated.values[i].first == trained.values[i].first);
    if (!evaluated.values[i].first.starts_with("time/")) CHECK(evaluated.values[i].second == trained.values[i].second);
  }
}

}  // namespace

TEST_CASE("an evaluation gives the numbers that a training logs at the checkpoint, and leaves output_dir alone") {
  const support::ScratchDirectory scratch;
  const config::RunConfig run = two_steps(scratch, "val_set_size: 0.25\neval_steps: 1\n");
  const fs::path out = scratch.path() / "out";
  CHECK(config::train(run).step == 2);
  const auto trained = logged(out);
  REQUIRE(trained.size() == 3);
  CHECK(trained.at(0).value("eval_loss") != trained.at(2).value("eval_loss"));
  std::map<std::string, fs::file_time_type> before;
  for (const auto& entry : fs::recursive_directory_iterator(out)) before[entry.path()] = entry.last_write_time();

  check_equal(config::evaluate(run).record, trained.at(0));
  check_equal(config::evaluate(run, (out / "checkpoint-1").string()).record, trained.at(1));
  const config::Evaluation last = config::evaluate(run, "last");
  check_equal(last.record, trained.at(2));
  CHECK(last.model == (out / "checkpoint-2").string());
  check_equal(config::evaluate(run, out.string()).record, trained.at(2));  // a model's directory

  std::map<std::string, fs::file_time_type> after;
  for (const auto& entry : fs::recursive_directory_iterator(out)) after[entry.path()] = entry.last_write_time();
  CHECK((before == after));
}

TEST_CASE("another setting than in training is told, and no obstacle") {
  const support::ScratchDirectory scratch;
  CHECK(config::train(two_steps(scratch)).step == 2);
  config::RunConfig other =
      two_steps(scratch, "val_set_size: 0.25\nrl_beta: 0.5\nauto_resume_from_checkpoints: true\n");
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  CHECK(config::evaluate(other, "last", {.note = note}).record.step == 2);
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& text) {
    return text.find("another setting") != std::string::npos &&
           text.find("beta: 0.1 in the checkpoint, 0.5 now") != std::string::npos;
  }));
}

TEST_CASE("nothing to evaluate on, no checkpoint, a damaged one, and one of another model") {
  const support::ScratchDirectory scratch;
  const fs::path out = scratch.path() / "out";
  CHECK_THROWS_WITH((void)config::evaluate(two_steps(scratch, "")), Contains("[rlalgo.config.32]"));
  const config::RunConfig run = two_steps(scratch);
  CHECK_THROWS_WITH((void)config::evaluate(run, "last"),
                    Contains("[rlalgo.config.30]") && Contains("no whole checkpoint"));
  CHECK_THROWS_WITH((void)config::evaluate(run, (out / "checkpoint-9").string()), Contains("[rlalgo.config.30]"));
  CHECK(config::train(run).step == 2);

  const auto rewrite = [](const fs::path& file, const std::string& from, const std::string& to) {
    std::ifstream in(file, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(in), {});
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    std::ofstream(file, std::ios::binary) << text;
  };
  fs::copy(out / "checkpoint-2", scratch.path() / "other", fs::copy_options::recursive);
  fs::remove(scratch.path() / "other" / run::state_file);  // a model's directory now
  rewrite(scratch.path() / "other/config.json", "\"rms_norm_eps\": ", "\"rms_norm_eps\": 1");
  CHECK_THROWS_WITH((void)config::evaluate(run, (scratch.path() / "other").string()), Contains("[rlalgo.config.29]"));
  fs::copy(quickstart / "model", scratch.path() / "renamed", fs::copy_options::recursive);
  rewrite(scratch.path() / "renamed/model.safetensors", "\"model.norm.weight\"", "\"model.norm.heavys\"");
  CHECK_THROWS_WITH((void)config::evaluate(run, (scratch.path() / "renamed").string()),
                    Contains("[rlalgo.trainer.21]"));

  rewrite(out / "checkpoint-2/rlalgo_state.json", "\"weights of base_model\": \"", "\"weights of base_model\": \"0");
  CHECK_THROWS_WITH((void)config::evaluate(run, (out / "checkpoint-2").string()), Contains("[rlalgo.run.5]"));
  rewrite(out / "checkpoint-2/rlalgo_state.json", "\n \"xxh64\"", "\n \"none\"");
  CHECK_THROWS_WITH((void)config::evaluate(run, "last"),
                    Contains("[rlalgo.config.29]") && Contains("weights of base_model"));
  rewrite(out / "checkpoint-1/trainer_state.json", "log_history", "lag_history");
  CHECK_THROWS_WITH((void)config::evaluate(run, (out / "checkpoint-1").string()), Contains("[rlalgo.run.5]"));
}
