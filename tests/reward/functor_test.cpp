#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>

#include <rlalgo/reward/functor.hpp>

using namespace rlalgo::reward;

namespace {
struct Arguments {
  std::vector<std::string> texts = {"one", "three"};
  rlalgo::support::Prompts prompts = {"p", "q"};
  std::vector<Json> completions = {"one", "three"};
  std::vector<Json> columns = {{{"answer", "one"}}, {{"answer", "two"}}};
  std::vector<std::vector<std::int32_t>> ids = {{1, 2}, {3}};
  std::vector<std::span<const std::int32_t>> views = {ids[0], ids[1]};
  [[nodiscard]] RewardCall call() const {
    return {.prompts = prompts,
            .completions = completions,
            .texts = texts,
            .completion_ids = views,
            .columns = columns,
            .step = 9};
  }
};
double free_function(const std::string& text) { return static_cast<double>(text.size()); }
}  // namespace

TEST_CASE("the four forms of a reward functor") {
  const Arguments arguments;
  const RewardCall call = arguments.call();
  using Values = std::vector<double>;
  CHECK((*from("text", [](const std::string& text) { return text.size(); }))(call) == Values{3, 5});
  CHECK((*from("columns", [](const std::string& text, const Json& columns) {
          return text == columns["answer"] ? 1 : 0;
        }))(call) == Values{1, 0});
  CHECK((*from("sample", [](const Sample& s) {
          return static_cast<double>(s.ids.size()) + (s.prompt == "q" ? 10.0 : 0.0) + static_cast<double>(s.step);
        }))(call) == Values{11, 20});
  CHECK((*from("batch", [](const RewardCall& c) { return Values(c.size(), 0.5); }))(call) == Values{0.5, 0.5});
  CHECK((*from("free", free_function))(call) == Values{3, 5});
  CHECK(from("free", free_function)->name() == "free");
}

TEST_CASE("NaN passes through, and a functor may keep state") {
  const Arguments arguments;
  const auto values = (*from("nan", [n = 0](const std::string&) mutable {
    return n++ == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
  }))(arguments.call());
  CHECK(std::isnan(values[0]));
  CHECK(values[1] == 1.0);
}

TEST_CASE("what is no reward functor") {
  STATIC_REQUIRE_FALSE(RewardFunctor<int>);
  const auto returns_text = [](const std::string& text) { return text; };
  STATIC_REQUIRE_FALSE(RewardFunctor<decltype(returns_text)>);
  const auto two_numbers = [](double, double) { return 1.0; };
  STATIC_REQUIRE_FALSE(RewardFunctor<decltype(two_numbers)>);
}
