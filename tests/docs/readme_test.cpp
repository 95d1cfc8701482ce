// The twelve lines of README.md, compiled and run (scripts/check_architecture.py compares the texts).
#include <support/catch.hpp>

#include <rlalgo/grpo.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/text/tokenizer.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

using namespace rlalgo;

TEST_CASE("the twelve lines of the README train a model to answer shortly") {
  const std::filesystem::path directory =
      std::filesystem::path(support::test_dir).parent_path() / "examples/quickstart/model";
  const std::shared_ptr<model::Decoder> decoder = model::load_decoder(directory);
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(directory);
  inference::LocalEngine engine(decoder->config(), decoder->weights());
  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 16, .num_generations = 16};
  config.run.rollouts.sampling = {.max_new_tokens = 24, .stop_ids = {*tokenizer.eos_id()}};
  config.run.trainer.schedule.learning_rate = 1e-3;
  config.run.trainer.loop.max_steps = 10;
  train<Grpo>(config, trainer::OnlineInputs<inference::LocalEngine>{
                          .policy = decoder,
                          .generator = engine,
                          .prompts = {{.ids = tokenizer.encode("Ada has 3 pears."), .prompt = "Ada has 3 pears."}},
                          .rewards = {[](const std::string& text) { return -static_cast<double>(text.size()); }},
                          .decode = [&](auto ids) { return tokenizer.decode(ids); }});
  std::ifstream metrics(config.run.trainer.loop.output_dir / "metrics.jsonl");
  std::vector<double> rewards;
  for (std::string line; std::getline(metrics, line);)
    rewards.push_back(nlohmann::json::parse(line).at("reward").get<double>());
  REQUIRE(rewards.size() == 10);
  CHECK(rewards.back() > rewards.front());
}
