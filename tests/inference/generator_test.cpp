#include <support/catch.hpp>

#include <rlalgo/inference/generator.hpp>

using namespace rlalgo;

namespace {

struct Echo {
  static constexpr inference::WeightSource weights = inference::WeightSource::snapshot;
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests)
      out.emplace_back(static_cast<std::size_t>(request.count),
                       data::Completion{{.ids = request.prompt, .log_probs = {}}});
    return out;
  }
};

struct Sourceless : Echo {
  static constexpr const char* weights = "nobody knows whose";
};

struct OneOnly {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  data::Completion generate(std::span<const inference::Request>, const inference::SamplingConfig&, inference::DrawKey);
};

}  // namespace

TEST_CASE("a generator maps requests to a group of completions each; anything less is none") {
  STATIC_REQUIRE(inference::Generator<Echo>);
  STATIC_REQUIRE_FALSE(inference::Generator<OneOnly>);
  STATIC_REQUIRE_FALSE(inference::Generator<Sourceless>);
  STATIC_REQUIRE_FALSE(inference::Generator<int>);
  CHECK(inference::source_of(Echo()) == inference::WeightSource::snapshot);
}
