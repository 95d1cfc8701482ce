#include <support/catch.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/assembly/turns.hpp>

using namespace rlalgo;

namespace {

// Draws the number of its call, once for each completion.
struct Counting {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    ++calls;
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests)
      out.push_back(
          std::vector<data::Completion>(static_cast<std::size_t>(request.count),
                                        {{.ids = {calls}, .log_probs = {-1.0f}, .finish = data::Finish::stop}}));
    return out;
  }
  std::int32_t calls = 0;
};

struct Twice {
  environment::Json reset(const environment::Json&, std::uint64_t) { return nullptr; }
  environment::Turn step(const std::string&) {
    return ++steps < 2 ? environment::Turn{.observation = "again"} : environment::Turn{.reward = 0.5, .done = true};
  }
  int steps = 0;
};

}  // namespace

TEST_CASE("an environment answers until it is done, and who draws lives as long as its turns") {
  STATIC_REQUIRE(assembly::Turns::exclusive);
  const inference::Dialogue dialogue{.open = [](const data::Json&) { return std::vector<data::TokenId>{7}; },
                                     .read =
                                         [](std::span<const data::TokenId>) {
                                           return data::Json{{"role", "assistant"}, {"content", "x"}};
                                         },
                                     .reply =
                                         [](const data::Json&) {
                                           return std::vector<data::TokenId>{8, 9};
                                         }};
  std::shared_ptr<inference::MultiTurn<Counting>> made;
  std::weak_ptr<Counting> seen;
  {
    const auto drawer = std::make_shared<Counting>();
    seen = drawer;
    made =
        assembly::Turns{.environments = environment::each<Twice>("twice"), .dialogues = {dialogue}}.around(drawer, "");
  }
  REQUIRE_FALSE(seen.expired());
  const data::TokenizedPrompt row{.row = 0, .ids = {7}, .prompt = "go", .columns = data::Json::object()};
  const std::vector<inference::Request> requests = {{.prompt = {7}, .source = &row}};
  const auto out = made->generate(requests, {.max_new_tokens = 16}, {.seed = 1});
  CHECK(out.at(0).at(0).ids == std::vector<data::TokenId>{1, 8, 9, 2});
  CHECK(out[0][0].loss_mask == std::vector<std::uint8_t>{1, 0, 0, 1});
  CHECK(out[0][0].interaction->reward == 0.5);
  made.reset();
  CHECK(seen.expired());
}
