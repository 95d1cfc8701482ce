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
  CHECK_FALSE(any.quantizes());
}

namespace {

struct Quantized : rlalgo::support::TableGenerator {
  using TableGenerator::TableGenerator;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};
  [[nodiscard]] bool quantizes() const { return true; }
};

}  // namespace

TEST_CASE("whether any generator draws as the trained policy is said by the one it stands for") {
  Quantized quantized({{rlalgo::support::completion({1})}});
  inference::AnyGenerator any(quantized);
  CHECK(any.quantizes());
  CHECK_FALSE(inference::draws_as_trained(any));
  rlalgo::support::TableGenerator table({{rlalgo::support::completion({1})}});
  CHECK(inference::draws_as_trained(inference::AnyGenerator(table)));
}
