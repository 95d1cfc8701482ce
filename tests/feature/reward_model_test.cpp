#include <cmath>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/feature/reward_model.hpp>

using namespace rlalgo;
using reward::Json;

namespace {

std::string directory(const std::string& name) {
  return std::string(rlalgo::support::test_dir) + "/golden/reward/models/" + name;
}

std::vector<double> scores(feature::RewardModel& reward, const std::vector<Json>& prompts,
                           const std::vector<Json>& completions) {
  std::vector<std::string> texts;
  for (const Json& c : completions) texts.push_back(c.is_array() ? c.at(0).at("content") : c);
  const std::vector<Json> columns(prompts.size(), Json::object());
  const std::vector<std::span<const std::int32_t>> ids(prompts.size());
  std::vector<const Json*> asked;
  for (const Json& prompt : prompts) asked.push_back(&prompt);
  return reward::evaluate(
      reward,
      {.prompts = asked, .completions = completions, .texts = texts, .completion_ids = ids, .columns = columns});
}

}  // namespace

TEST_CASE("reward models score as TRL has transformers score") {
  const std::string name = GENERATE("llama", "qwen2", "qwen3");
  feature::RewardModel reward(directory(name));
  CHECK(reward.name() == name);
  std::ifstream file(directory(name) + "/expected.json");
  const Json rows = Json::parse(file);
  REQUIRE(rows.size() == 14);
  // Texts and conversations are separate batches, as in TRL.
  for (const bool conversations : {false, true}) {
    std::vector<Json> prompts, completions;
    std::vector<double> expected;
    for (const Json& row : rows) {
      if (row[0].is_array() != conversations) continue;
      prompts.push_back(row[0]);
      completions.push_back(row[1]);
      expected.push_back(row[2]);
    }
    const std::vector<double> values = scores(reward, prompts, completions);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO(name << " row " << i << ": " << prompts[i].dump());
      CHECK(values[i] == Approx(expected[i]).margin(2e-5));
    }
    // The same, one by one.
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(scores(reward, {prompts[i]}, {completions[i]})[0] == Approx(values[i]).margin(2e-5));
  }
  // A text without a token has no score.
  CHECK(std::isnan(scores(reward, {""}, {""})[0]));
}

TEST_CASE("what is no reward model is refused") {
  const std::string language_model = std::string(rlalgo::support::test_dir) + "/golden/model/llama";
  CHECK_THROWS_WITH(model::load_sequence_classifier(language_model),
                    Catch::Contains("[rlalgo.model.10]") && Catch::Contains("ForSequenceClassification"));
  CHECK_FALSE(model::is_sequence_classifier(language_model));
  CHECK(model::is_sequence_classifier(directory("qwen2")));
  CHECK_FALSE(model::is_sequence_classifier("/no/such/directory"));
}
