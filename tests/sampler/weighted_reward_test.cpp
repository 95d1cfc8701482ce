#include <rlalgo/sampler/weighted_reward.hpp>

#include <memory>
#include <string>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;
using Names = std::vector<std::string>;

namespace {

struct Constant : reward::RewardFunction {
  [[nodiscard]] std::string name() const override { return "constant"; }
  std::vector<double> operator()(const reward::RewardCall& call) override {
    return std::vector<double>(call.size(), 3.0);
  }
};

double of_one(const sampler::WeightedReward& reward, const std::string& text) {
  const std::vector<std::string> texts = {text};
  const std::vector<reward::Json> columns = {{{"answer", "yes"}}}, completions = {text};
  const std::vector<std::int32_t> ids = {1, 2};
  const std::vector<std::span<const std::int32_t>> id_rows = {ids};
  const reward::Json prompt = "p";
  const std::vector<const reward::Json*> prompts = {&prompt};
  return (*reward.function)({.prompts = prompts,
                             .completions = completions,
                             .texts = texts,
                             .completion_ids = id_rows,
                             .columns = columns})[0];
}

}  // namespace

TEST_CASE("a callable of every form is a reward of weight 1, a pair of it and a number one of that weight") {
  const std::vector<sampler::WeightedReward> rewards = {
      [](const std::string& text) { return static_cast<double>(text.size()); },
      {"right", [](const std::string& text, const reward::Json& c) { return text == c["answer"] ? 1.0 : 0.0; }, 0.5},
      {[](const reward::Sample& s) { return static_cast<double>(s.ids.size()); }, 2.0},
      {std::make_shared<Constant>(), 4.0},
      Constant()};
  CHECK(of_one(rewards[0], "yes") == 3.0);
  CHECK(of_one(rewards[1], "yes") == 1.0);
  CHECK(of_one(rewards[1], "no") == 0.0);
  CHECK(of_one(rewards[2], "") == 2.0);
  CHECK(of_one(rewards[3], "") == 3.0);
  CHECK(of_one(rewards[4], "") == 3.0);
  Names weights;
  for (const auto& reward : rewards) weights.push_back(std::to_string(reward.weight).substr(0, 3));
  CHECK(weights == Names{"1.0", "0.5", "2.0", "4.0", "1.0"});
}

TEST_CASE("a reward without a name is named by its place where there are several") {
  const auto zero = [](const std::string&) { return 0.0; };
  const std::vector<sampler::WeightedReward> one = {zero, {"other", zero}};
  CHECK(sampler::reward_names(one) == Names{"reward", "other"});
  const std::vector<sampler::WeightedReward> two = {zero, {"other", zero}, {zero, 0.5}};
  CHECK(sampler::reward_names(two) == Names{"reward_1", "other", "reward_3"});
  CHECK(sampler::reward_names({}).empty());
}
