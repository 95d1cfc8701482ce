#include <rlalgo/feature/block_matching.hpp>
#include <rlalgo/feature/matching.hpp>

#include <memory>

#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/token_tree.hpp>

using namespace rlalgo;
using feature::Normalization;
using feature::Pooling;
using Ids = std::vector<std::int32_t>;

namespace {

std::shared_ptr<model::Decoder> decoder() {
  return model::random_decoder(model::parse_hf_config(support::small_config("qwen3"), "test"), 3, at::kDouble);
}

Ids text(std::size_t length, int salt) {
  Ids out;
  for (std::size_t i = 0; i < length; ++i)
    out.push_back(static_cast<std::int32_t>((i * i + static_cast<std::size_t>(salt) * i + 5) % 23));
  return out;
}

// The pooled feature of the tokens of `ids` from `begin` on, by an ordinary pass over `ids` alone.
std::vector<double> plain(const feature::FeatureNetwork& network, const Ids& ids, std::int64_t begin, Pooling pooling) {
  model::TokenTree tree;
  (void)model::append_document(tree, ids, {});
  const auto length = static_cast<std::int64_t>(ids.size()) - begin;
  return network(tree).pooled(feature::stretches(pooling, length), [&](std::int64_t t) { return begin + t; });
}

}  // namespace

TEST_CASE("features of blocks are those of ordinary sequences") {
  for (const Normalization normalization : {Normalization::joint, Normalization::per_layer})
    for (const Pooling pooling : {Pooling::last_token, Pooling::mean_pooling}) {
      const feature::FeatureNetwork network(decoder(), {0, 1, 1, 2}, normalization);
      const Ids document = text(25, 1);
      std::vector<std::vector<Ids>> samples;
      std::vector<feature::SampledBlock> blocks;
      for (const std::int64_t start : {2, 9, 22})
        samples.push_back({text(3, static_cast<int>(start)), text(3, static_cast<int>(start) + 1), text(3, 40)});
      samples[1][2] = samples[1][0];  // a duplicate
      for (std::size_t k = 0; k < 3; ++k) blocks.push_back({std::vector<std::int64_t>{2, 9, 22}[k], samples[k]});
      const auto grams = feature::block_grams(network, document, blocks, pooling);
      REQUIRE(grams.size() == 3);
      for (std::size_t k = 0; k < 3; ++k) {
        const std::int64_t start = blocks[k].start;
        std::vector<std::vector<double>> features;
        for (const Ids& sample : samples[k]) {
          Ids whole(document.begin(), document.begin() + start);
          whole.insert(whole.end(), sample.begin(), sample.end());
          features.push_back(plain(network, whole, start, pooling));
        }
        const Ids window(document.begin(), document.begin() + start + 3);
        const feature::Gram expected = feature::gram(features, plain(network, window, start, pooling));
        for (std::size_t i = 0; i < 9; ++i) CHECK(grams[k].among[i] == Approx(expected.among[i]).epsilon(1e-12));
        for (std::size_t i = 0; i < 3; ++i)
          CHECK(grams[k].with_truth[i] == Approx(expected.with_truth[i]).epsilon(1e-12));
      }
      CHECK(grams[1].among[0] == grams[1].among[2]);  // to the bit
      CHECK(grams[1].with_truth[0] == grams[1].with_truth[2]);
    }
}

TEST_CASE("a block that repeats the document matches it") {
  const feature::FeatureNetwork network(decoder(), {1, 2});
  const Ids document = text(12, 2);
  const std::vector<Ids> samples = {{document.begin() + 4, document.begin() + 8}, text(4, 9)};
  const auto gram =
      feature::block_grams(network, document, std::vector<feature::SampledBlock>{{4, samples}}, Pooling::last_token)
          .front();
  CHECK(gram.with_truth[0] == Approx(gram.truth).epsilon(1e-12));
  CHECK(feature::match(gram).alignment[0] == Approx(2.0));
  CHECK(feature::match(gram).alignment[1] < 1.999);
}

TEST_CASE("windows end inside of the document") {
  const feature::FeatureNetwork network(decoder(), {1});
  const Ids document = text(12, 2);
  const std::vector<Ids> samples = {text(4, 9)};
  CHECK_THROWS_WITH(
      feature::block_grams(network, document, std::vector<feature::SampledBlock>{{9, samples}}, Pooling::last_token),
      Catch::Contains("[rlalgo.feature.4]"));
  CHECK(feature::block_grams(network, document, {}, Pooling::last_token).empty());
}
