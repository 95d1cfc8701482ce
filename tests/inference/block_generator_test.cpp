#include <rlalgo/inference/block_generator.hpp>

#include <cstdint>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/inference/generator.hpp>

using namespace rlalgo;

namespace {

// A user's own: the same token everywhere.
struct Same {
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;
  [[nodiscard]] inference::BlockSamples generate(const inference::BlockRequest& request,
                                                 const inference::SamplingConfig&, inference::DrawKey) const {
    const std::vector<data::TokenId> block(static_cast<std::size_t>(request.length), 7);
    const std::vector<std::vector<data::TokenId>> samples(static_cast<std::size_t>(request.count), block);
    return inference::BlockSamples(request.starts.size(), samples);
  }
};

struct NoWeights {
  [[nodiscard]] inference::BlockSamples generate(const inference::BlockRequest&, const inference::SamplingConfig&,
                                                 inference::DrawKey) const;
};

struct FlatSamples {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  [[nodiscard]] std::vector<std::vector<data::TokenId>> generate(const inference::BlockRequest&,
                                                                 const inference::SamplingConfig&,
                                                                 inference::DrawKey) const;
};

template <class G>
constexpr bool makes_blocks = inference::BlockGenerator<G>;

}  // namespace

TEST_CASE("what makes blocks says whose weights it draws from and answers per block, sample and token") {
  CHECK(makes_blocks<inference::BlockEngine>);
  CHECK(makes_blocks<Same>);
  CHECK_FALSE(makes_blocks<NoWeights>);
  CHECK_FALSE(makes_blocks<FlatSamples>);
}

TEST_CASE("a document without starts has no blocks, and a start is one block of one token unless more is asked for") {
  const std::vector<data::TokenId> document = {1, 2, 3};
  CHECK(Same().generate({.document = document, .starts = {}}, {}, {}).empty());
  CHECK(Same().generate({.document = document, .starts = {1, 2}}, {}, {}) == inference::BlockSamples{{{7}}, {{7}}});
}
