#include <support/scratch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/config/fingerprints.hpp>

using namespace rlalgo;
using config::RunConfig;

namespace {

std::vector<data::TokenizedPrompt> prompts() {
  return {{.row = 0, .ids = {1, 2, 3}, .prompt = "2 + 2?", .columns = {{"answer", "4"}}},
          {.row = 1, .ids = {1, 2, 4}, .prompt = "3 + 3?", .columns = {{"answer", "6"}}}};
}

void write_model(const support::ScratchDirectory& scratch, const std::string& name, const std::string& weights) {
  (void)scratch.write(name + "/config.json", "{}");
  (void)scratch.write(name + "/model.safetensors", weights);
}

}  // namespace

TEST_CASE("reward code, tools, environments and reward models are fingerprinted by their files") {
  const support::ScratchDirectory scratch;
  (void)scratch.write("my_rewards.py", "def one(completions, **kwargs):\n    return [1.0] * len(completions)\n");
  (void)scratch.write("games.py", "class Guess: pass\n");
  write_model(scratch, "judge", "weights");
  RunConfig c;
  c.rl = "grpo";
  c.file = (scratch.path() / "config.yaml").string();
  const std::string judge = (scratch.path() / "judge").string();
  c.trl.reward_funcs = {"my_rewards.one", "builtin.gsm8k_format", judge};
  c.trl.environment_factory = "games.Guess";
  c.trl.tools = {"calculator"};
  const data::Json before = config::fingerprints(c, prompts(), {});
  CHECK(before.size() == 4);
  CHECK(before.contains("code of my_rewards.one"));
  CHECK(before.contains("code of games.Guess"));
  CHECK(before.contains("weights of " + judge));
  (void)scratch.write("my_rewards.py", "def one(completions, **kwargs):\n    return [2.0] * len(completions)\n");
  const data::Json after = config::fingerprints(c, prompts(), {});
  CHECK(after["code of my_rewards.one"] != before["code of my_rewards.one"]);
  CHECK(after["code of games.Guess"] == before["code of games.Guess"]);
  write_model(scratch, "judge", "weightz");
  CHECK(config::fingerprints(c, prompts(), {})["weights of " + judge] != before["weights of " + judge]);
  CHECK(config::fingerprints(c, prompts(), prompts()).contains("held-out rows"));
}

TEST_CASE("the base model is fingerprinted where the run reads it again") {
  const support::ScratchDirectory scratch;
  write_model(scratch, "model", "weights");
  write_model(scratch, "adapter", "delta");
  RunConfig c;
  c.rl = "grpo";
  c.base_model = (scratch.path() / "model").string();
  CHECK_FALSE(config::fingerprints(c, prompts(), {}).contains("weights of base_model"));
  c.lora.emplace();
  CHECK(config::fingerprints(c, prompts(), {}).contains("weights of base_model"));
  c.lora_model_dir = (scratch.path() / "adapter").string();
  CHECK_FALSE(config::fingerprints(c, prompts(), {}).contains("weights of lora_model_dir"));
  c.beta = 0.1;
  CHECK(config::fingerprints(c, prompts(), {}).contains("weights of lora_model_dir"));
}

TEST_CASE("preferences are fingerprinted by tokens and labels") {
  assembly::PreferenceData data;
  data.train = std::make_shared<data::AnswerSet>(2);
  const std::vector<data::TokenId> prompt = {1}, chosen = {2, 3}, rejected = {2, 4};
  data.train->append(0, true, prompt, chosen);
  data.train->append(0, false, prompt, rejected);
  RunConfig c;
  c.rl = "orpo";
  const data::Json one = config::fingerprints(c, data);
  CHECK(one.size() == 1);
  data.evaluation = std::make_shared<data::AnswerSet>(*data.train);
  CHECK(config::fingerprints(c, data).size() == 2);
  data.train = std::make_shared<data::AnswerSet>(2);
  data.train->append(0, true, prompt, rejected);
  data.train->append(0, false, prompt, chosen);
  CHECK(config::fingerprints(c, data)["rows of datasets"] != one["rows of datasets"]);
}
