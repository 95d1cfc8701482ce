#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/reward/failure_policy.hpp>
#include <rlalgo/reward/functor.hpp>

using namespace rlalgo;
using reward::Guarded;
using reward::Json;
using reward::OnFailure;

namespace {

// Fails for every text "bad", and logs what it saw.
std::vector<double> fussy(const reward::RewardCall& call) {
  for (const std::string& text : call.texts)
    if (text == "bad") throw std::runtime_error("a bad text");
  std::vector<double> values;
  Json seen = Json::array();
  for (const std::string& text : call.texts) {
    values.push_back(static_cast<double>(text.size()));
    seen.push_back(text);
  }
  if (call.log != nullptr) call.log->extras.emplace_back("seen", seen);
  return values;
}

std::vector<double> score(OnFailure policy, const std::vector<std::string>& texts, reward::RewardLog* log) {
  const rlalgo::support::Prompts prompts(texts.size(), "p");
  const std::vector<Json> completions(texts.begin(), texts.end()), columns(texts.size(), Json::object());
  const std::vector<std::span<const std::int32_t>> ids(texts.size());
  Guarded guarded(reward::from("fussy", fussy), policy);
  CHECK(guarded.name() == "fussy");
  return reward::evaluate(guarded, {.prompts = prompts,
                                    .completions = completions,
                                    .texts = texts,
                                    .completion_ids = ids,
                                    .columns = columns,
                                    .log = log});
}

}  // namespace

TEST_CASE("error: the failure stops the run") {
  reward::RewardLog log;
  CHECK_THROWS_WITH(score(OnFailure::error, {"a", "bad"}, &log),
                    Catch::Contains("[rlalgo.reward.2]") && Catch::Contains("a bad text"));
  CHECK(score(OnFailure::error, {"a", "bb"}, &log) == std::vector<double>{1, 2});
  CHECK(log.own_metrics.empty());
}

TEST_CASE("nan and zero: only the completions that fail lose their value") {
  const std::vector<std::string> texts = {"a", "bb", "bad", "dddd", "eeeee", "bad", "bad"};
  reward::RewardLog log;
  const auto zero = score(OnFailure::zero, texts, &log);
  CHECK(zero == std::vector<double>{1, 2, 0, 4, 5, 0, 0});
  REQUIRE(log.own_metrics.size() == 1);
  CHECK(log.own_metrics[0].first == "rewards/fussy/failed");
  CHECK(log.own_metrics[0].second == Approx(3.0 / 7));
  REQUIRE(log.warnings.size() == 1);
  CHECK_THAT(log.warnings[0], Catch::Contains("failed for 3 of 7") && Catch::Contains("a bad text"));
  REQUIRE(log.extras.size() == 1);
  CHECK(log.extras[0].second == Json{"a", "bb", nullptr, "dddd", "eeeee", nullptr, nullptr});
  const auto nan = score(OnFailure::nan, texts, nullptr);
  for (std::size_t i = 0; i < texts.size(); ++i) CHECK(std::isnan(nan[i]) == (texts[i] == "bad"));
}

TEST_CASE("nothing fails: the share is written as 0, nothing is warned of") {
  reward::RewardLog log;
  CHECK(score(OnFailure::nan, {"a"}, &log) == std::vector<double>{1});
  CHECK(log.own_metrics.at(0).second == 0.0);
  CHECK(log.warnings.empty());
  CHECK(score(OnFailure::nan, {}, &log).empty());
}

TEST_CASE("a function that always fails is not asked without end") {
  std::size_t calls = 0;
  const std::vector<std::string> texts(1000, "bad");
  const std::vector<Json> rows(texts.size(), Json::object());
  const std::vector<std::span<const std::int32_t>> ids(texts.size());
  Guarded guarded(reward::from("never",
                               [&calls](const reward::RewardCall&) -> std::vector<double> {
                                 ++calls;
                                 throw std::runtime_error("never");
                               }),
                  OnFailure::nan);
  const auto values = guarded({.prompts = rlalgo::support::Prompts(texts.size(), "p"),
                               .completions = rows,
                               .texts = texts,
                               .completion_ids = ids,
                               .columns = rows});
  CHECK(values.size() == 1000);
  CHECK(calls < 100);
}

namespace {

// Values in turn, whatever the texts are.
struct Given {
  std::vector<double> values;
  std::vector<double> operator()(const reward::RewardCall&) const { return values; }
};

struct Scored {
  std::vector<double> values;
  reward::RewardLog log;
};

Scored given(Guarded& guarded, std::size_t rows, std::int64_t step) {
  Scored out;
  const rlalgo::support::Prompts prompts(rows, "p");
  const std::vector<std::string> texts(rows, "t");
  const std::vector<Json> completions(rows, "t"), columns(rows, Json::object());
  const std::vector<std::span<const std::int32_t>> ids(rows);
  out.values = reward::evaluate(guarded, {.prompts = prompts,
                                          .completions = completions,
                                          .texts = texts,
                                          .completion_ids = ids,
                                          .columns = columns,
                                          .step = step,
                                          .log = &out.log});
  return out;
}

}  // namespace

TEST_CASE("infinite and too large values are failures of their own completion") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Given values{{1, -infinity, 1e308, -3.4e38, 3.5e38, infinity, std::nan("")}};
  for (const OnFailure policy : {OnFailure::nan, OnFailure::zero}) {
    Guarded guarded(reward::from("wild", values), policy);
    const Scored scored = given(guarded, 7, 3);
    for (const std::size_t i : {1U, 2U, 4U, 5U})
      CHECK((policy == OnFailure::nan ? std::isnan(scored.values[i]) : scored.values[i] == 0.0));
    CHECK(scored.values[0] == 1);
    CHECK(scored.values[3] == -3.4e38);
    CHECK(std::isnan(scored.values[6]));
    REQUIRE(scored.log.own_metrics.size() == 1);
    CHECK(scored.log.own_metrics[0].second == Approx(4.0 / 7));
    REQUIRE(scored.log.warnings.size() == 1);
    CHECK_THAT(scored.log.warnings[0], Catch::Contains("failed for 4 of 7") && Catch::Contains("it returned -inf"));
  }
  Guarded strict(reward::from("wild", values), OnFailure::error);
  CHECK_THROWS_WITH(given(strict, 7, 3), Catch::Contains("[rlalgo.reward.10]") && Catch::Contains("'wild'") &&
                                             Catch::Contains("found -inf for completion 2 of 7") &&
                                             Catch::Contains("step 3"));
}

TEST_CASE("a step with several calls is warned of once, and counted each time") {
  Guarded guarded(reward::from("wild", Given{{std::numeric_limits<double>::infinity()}}), OnFailure::zero);
  CHECK(given(guarded, 1, 0).log.warnings.size() == 1);
  const Scored again = given(guarded, 1, 0);
  CHECK(again.log.warnings.empty());
  CHECK(again.log.own_metrics.at(0).second == 1.0);
  CHECK(given(guarded, 1, 1).log.warnings.size() == 1);
}
