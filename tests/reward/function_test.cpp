#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/reward/function.hpp>

using namespace rlalgo;

namespace {
struct Fake final : reward::RewardFunction {
  std::vector<double> values;
  int fault = 0;
  reward::Json notes = reward::Json::array({"x", "y"});
  [[nodiscard]] std::string name() const override { return "fake"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    if (call.log != nullptr) call.log->extras.emplace_back("notes", notes);
    if (fault == 1) throw std::runtime_error("no such key: answer");
    if (fault == 2) core::raise("remote", 6, {.what = "late"});
    return values;
  }
};
}  // namespace

TEST_CASE("a metric by a name that the run has stands apart, and a warning says so") {
  class Logs final : public reward::RewardFunction {
   public:
    [[nodiscard]] std::string name() const override { return "loud"; }
    std::vector<double> operator()(const reward::RewardCall& call) override {
      for (const char* name : {"loss", "step", "rewards/loud/mean", "mine", "loss"})
        call.log->metrics.emplace_back(name, 1e6);
      call.log->own_metrics.emplace_back("rewards/loud/failed", 0.0);
      return std::vector<double>(call.size(), 1.0);
    }
  };
  Logs loud;
  reward::RewardLog log;
  log.metrics.emplace_back("loss", 1.0);  // of somebody before
  (void)reward::evaluate(loud, {.texts = {}, .log = &log});
  std::vector<std::string> names;
  for (const auto& [name, value] : log.metrics) names.push_back(name);
  CHECK(names == std::vector<std::string>{"loss", "logged/loss", "logged/step", "logged/rewards/loud/mean", "mine",
                                          "logged/loss"});
  CHECK(log.own_metrics.at(0).first == "rewards/loud/failed");
  REQUIRE(log.warnings.size() == 3);
  CHECK(
      log.warnings[0] ==
      "the reward function 'loud' logs a metric by the name 'loss', which is the run's own: it stands as logged/loss");
}

TEST_CASE("a call returns one value per completion or fails with a number") {
  const std::vector<std::string> texts = {"a", "b"};
  reward::RewardCall call;
  call.texts = texts;
  call.step = 4;
  Fake fake;
  fake.values = {1, 2};
  CHECK(reward::evaluate(fake, call) == std::vector<double>{1, 2});
  reward::RewardLog log;
  call.log = &log;
  CHECK(reward::evaluate(fake, call) == std::vector<double>{1, 2});
  CHECK(log.extras.size() == 1);
  for (const reward::Json& notes : {reward::Json::array({"x"}), reward::Json("xy")}) {
    fake.notes = notes;
    CHECK_THROWS_WITH(reward::evaluate(fake, call),
                      Catch::Contains("[rlalgo.reward.4]") && Catch::Contains("1 entries in 'notes', expected 2"));
  }
  fake.values = {1};
  CHECK_THROWS_WITH(reward::evaluate(fake, call), Catch::Contains("[rlalgo.reward.1]") && Catch::Contains("'fake'") &&
                                                      Catch::Contains("found 1, expected 2") &&
                                                      Catch::Contains("step 4"));
  fake.fault = 1;
  CHECK_THROWS_WITH(reward::evaluate(fake, call),
                    Catch::Contains("[rlalgo.reward.2]") && Catch::Contains("no such key: answer"));
  fake.fault = 2;
  CHECK_THROWS_WITH(reward::evaluate(fake, call), Catch::Contains("[rlalgo.remote.6]"));
}

TEST_CASE("a value is a number that float32 can hold, or NaN") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -1e38, 3.4e38, std::nan("")}) CHECK(reward::is_usable(value));
  for (const double value : {infinity, -infinity, 1e308, -3.5e38}) {
    CHECK_FALSE(reward::is_usable(value));
    const std::vector<std::string> texts = {"a", "b"};
    reward::RewardCall call;
    call.texts = texts;
    Fake fake;
    fake.values = {1, value};
    CHECK_THROWS_WITH(reward::evaluate(fake, call),
                      Catch::Contains("[rlalgo.reward.10]") && Catch::Contains("completion 2 of 2"));
  }
}
