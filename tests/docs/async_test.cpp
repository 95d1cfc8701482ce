// The asynchronous run of docs/async.md, compiled and run (scripts/check_architecture.py compares the texts).
#include <support/catch.hpp>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/trainer/asynchronous.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace rlalgo;

TEST_CASE("the asynchronous run of the documents learns from completions that are one update old") {
  const std::string directory =
      (std::filesystem::path(support::test_dir).parent_path() / "examples/quickstart/model").string();

  const auto model = assembly::LanguageModel::load(directory);
  assembly::Completions completions(model, assembly::Engine(), assembly::Plain(), assembly::Asynchronous());
  const data::Json rows = {{{"prompt", "Ada has 3 pears and finds 4 more. How many?"}, {"answer", "7"}},
                           {{"prompt", "Ben has 9 coins and loses 4. How many?"}, {"answer", "5"}}};
  const auto right = [](const std::string& text, const data::Json& columns) {
    return text.find(columns.at("answer").get<std::string>()) != std::string::npos ? 1.0 : 0.0;
  };
  TrainConfig<Grpo, optim::AdamW8bit> config;
  config.run.rollouts.geometry = {.micro_batch_size = 16, .num_generations = 8};  // two groups of eight a step
  config.run.rollouts.sampling = {.max_new_tokens = 24, .stop_ids = model.stop_ids};
  config.run.trainer.schedule.learning_rate = 5e-4;
  config.run.trainer.loop.max_steps = 10;
  config.run.trainer.loop.output_dir = "async-out";
  auto inputs = assembly::online_inputs(model, completions, assembly::prompts(model, rows), {right});
  const AsynchronousConfig ahead{.prefetch = completions.ahead({.depth = 1})};
  const run::Outcome outcome = train_async<Grpo>(config, ahead, std::move(inputs));

  CHECK(outcome.exit_code() == 0);
  CHECK(outcome.step == 10);
  std::ifstream metrics("async-out/metrics.jsonl");
  std::vector<double> staleness;
  std::set<double> rewards;
  for (std::string line; std::getline(metrics, line);) {
    const data::Json record = data::Json::parse(line);
    staleness.push_back(record.at("async/staleness/mean").get<double>());
    rewards.insert(record.at("rewards/reward/mean").get<double>());
  }
  REQUIRE(staleness.size() == 10);
  CHECK(staleness.front() == 0.0);
  CHECK(staleness.back() == 1.0);
  CHECK(rewards.size() > 1);
  CHECK(*rewards.rbegin() <= 1.0);
}
