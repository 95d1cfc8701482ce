#include <rlalgo/inference/any_generator.hpp>

#include <support/catch.hpp>
#include <support/table_generator.hpp>

using namespace rlalgo;

TEST_CASE("any generator behind one type answers as the one it stands for") {
  rlalgo::support::TableGenerator table({{rlalgo::support::completion({1, 0})}, {rlalgo::support::completion({2, 0})}});
  inference::AnyGenerator any(table);
  const std::vector<inference::Request> requests = {{.prompt = {1}, .count = 1}, {.prompt = {0}, .count = 1}};
  const auto out = any.generate(requests, {}, {});
  REQUIRE(out.size() == 2);
  CHECK(out[0][0].ids == std::vector<data::TokenId>{2, 0});
  CHECK(out[1][0].ids == std::vector<data::TokenId>{1, 0});
  STATIC_REQUIRE(inference::AnyGenerator::weights == inference::WeightSource::erased);
  CHECK(inference::source_of(any) == inference::WeightSource::shared);  // of the one inside
}
