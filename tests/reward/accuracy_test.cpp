#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/reward/accuracy.hpp>
#include <rlalgo/reward/shape.hpp>

using namespace rlalgo;
using reward::Json;

namespace {

// One call whose parts live as long as this.
struct Batch {
  rlalgo::support::Prompts prompts;
  std::vector<Json> completions, columns;
  std::vector<std::string> texts;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::span<const std::int32_t>> views;
  reward::RewardLog log;

  void add(const std::string& prompt, const std::string& text, std::size_t length, Json row) {
    prompts.emplace_back(prompt);
    completions.emplace_back(text);
    texts.push_back(text);
    ids.emplace_back(length, 1);
    columns.push_back(std::move(row));
  }
  reward::RewardCall call() {
    views.assign(ids.begin(), ids.end());
    return {.prompts = prompts,
            .completions = completions,
            .texts = texts,
            .completion_ids = views,
            .columns = columns,
            .log = &log};
  }
};

Json golden(const char* name) {
  std::ifstream file(std::string(rlalgo::support::test_dir) + "/golden/reward/trl_rewards.json");
  return Json::parse(file).at(name);
}

void check_value(double value, const Json& expected) {
  if (expected.is_null())
    CHECK(std::isnan(value));
  else
    CHECK(value == Approx(expected.get<double>()).epsilon(1e-12).margin(1e-12));
}

}  // namespace

TEST_CASE("accuracy_reward logs what it compared") {
  Batch batch;
  batch.add("p", "\\boxed{\\frac{2}{4}}", 5, {{"solution", "0.5"}});
  batch.add("p", "I do not know", 5, {{"solution", "0.5"}});
  batch.add("p", "\\boxed{1}", 5, {{"solution", "no number"}});
  batch.add("p", "\\boxed{1}", 5, {{"solution", nullptr}});
  batch.add("p", "\\boxed{7}", 5, {{"solution", 7}});
  const auto values = reward::Accuracy{}(batch.call());
  CHECK(values[0] == 1.0);
  CHECK(values[1] == 0.0);
  CHECK(std::isnan(values[2]));
  CHECK(std::isnan(values[3]));
  CHECK(values[4] == 1.0);
  REQUIRE(batch.log.extras.size() == 3);
  CHECK(batch.log.extras[0] == std::pair<std::string, Json>{"solution", {"0.5", "0.5", "no number", nullptr, "7"}});
  CHECK(batch.log.extras[1].second == Json{"0.5", "0.5", "[unparseable]", "[unparseable]", "7"});
  CHECK(batch.log.extras[2].second == Json{"\\frac{2}{4}", "[unparseable]", "[skipped]", "[skipped]", "7"});
}

TEST_CASE("reasoning_accuracy_reward as TRL") {
  for (const Json& row : golden("reasoning_accuracy")) {
    INFO(row.dump());
    Batch batch;
    batch.add("p", row[0], 3, {{"solution", row[2]}});
    reward::ReasoningAccuracy function;
    if (!row[1].is_null()) function.reasoning_delimiters = row[1].get<std::vector<std::string>>();
    check_value(function(batch.call())[0], row[3]);
    CHECK(batch.log.extras.size() == 3);
  }
}

TEST_CASE("cosine_scaled_reward as TRL") {
  for (const Json& row : golden("cosine_scaled")) {
    INFO(row.dump());
    Batch batch;
    batch.add("p", "\\boxed{72}", row[1].get<std::size_t>(), {{"solution", row[2]}});
    const Json& a = row[0];
    reward::CosineScaled function{.max_len = a.at("max_len")};
    function.min_value_wrong = a.value("min_value_wrong", function.min_value_wrong);
    function.max_value_wrong = a.value("max_value_wrong", function.max_value_wrong);
    function.min_value_correct = a.value("min_value_correct", function.min_value_correct);
    function.max_value_correct = a.value("max_value_correct", function.max_value_correct);
    check_value(function(batch.call())[0], row[3]);
  }
  // Half of the way: cos(π/2) = 0, the middle of both bounds.
  CHECK(reward::CosineScaled{.max_len = 100}.value(true, 50) == Approx(0.75));
  CHECK(reward::CosineScaled{.max_len = 100}.value(false, 50) == Approx(-0.75));
}

TEST_CASE("length_reward compares the completions of one prompt") {
  Batch batch;
  batch.add("p", "\\boxed{1}", 10, {{"solution", "1"}});  // λ = ½
  batch.add("p", "\\boxed{1}", 20, {{"solution", "1"}});  // λ = −½
  batch.add("p", "\\boxed{2}", 12, {{"solution", "1"}});  // wrong, λ = 0.3 → 0
  batch.add("p", "\\boxed{2}", 18, {{"solution", "1"}});  // wrong, λ = −0.3
  batch.add("q", "\\boxed{1}", 90, {{"solution", "1"}});  // alone: 0
  const auto values = reward::RelativeLength{}(batch.call());
  const std::vector<double> expected = {0.5, -0.5, 0.0, -0.3, 0.0};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(values[i] == Approx(expected[i]).margin(1e-12));
}

TEST_CASE("a dataset without the column is refused") {
  Batch batch;
  batch.add("p", "\\boxed{1}", 10, {{"answer", "1"}});
  CHECK_THROWS_WITH(reward::Accuracy{}(batch.call()),
                    Catch::Contains("[rlalgo.reward.5]") && Catch::Contains("'solution'"));
}

TEST_CASE("format and length rewards as TRL") {
  for (const Json& row : golden("think_format")) {
    INFO(row.dump());
    check_value(reward::think_format(row[0]), row[1]);
  }
  for (const Json& row : golden("repetition_penalty")) {
    INFO(row.dump());
    const auto ids = row[2].get<std::vector<std::int32_t>>();
    check_value(reward::Repetition{row[0].get<std::size_t>(), row[1].get<double>()}(ids), row[3]);
  }
  for (const Json& row : golden("soft_overlong")) {
    INFO(row.dump());
    check_value(reward::SoftOverlong{row[0].get<std::int64_t>(), row[1].get<std::int64_t>()}(row[2]), row[3]);
  }
}
