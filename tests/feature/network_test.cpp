#include <rlalgo/feature/network.hpp>

#include <memory>
#include <numeric>

#include <ATen/ops/tensor.h>
#include <support/catch.hpp>

using namespace rlalgo;
using feature::Normalization;

namespace {

// Hidden states that depend on token, depth and nothing else.
struct Table : model::Policy {
  std::vector<std::int64_t> asked;
  std::vector<std::vector<double>> low, high;  // [vocab][2]
  model::Scores score(const model::TokenTree&, const model::ScoreOptions&) override { return {}; }
  std::vector<model::Parameter> parameters() override { return {}; }
  std::vector<at::Tensor> features(const model::TokenTree& tree, std::span<const std::int64_t> layers) override {
    asked.assign(layers.begin(), layers.end());
    std::vector<at::Tensor> out;
    for (const std::int64_t layer : layers) {
      std::vector<at::Tensor> rows;
      for (const std::int64_t id : tree.ids)
        rows.push_back(at::tensor((layer < 2 ? low : high).at(static_cast<std::size_t>(id)), at::kDouble));
      out.push_back(tensor::stack(rows));
    }
    return out;
  }
};

std::vector<double> values(const at::Tensor& x) {
  return {x.const_data_ptr<double>(), x.const_data_ptr<double>() + x.numel()};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::shared_ptr<Table> table() {
  auto out = std::make_shared<Table>();
  out->low = {{3, 4}, {4, 3}, {0, 0}};
  out->high = {{1, 0}, {0, 1}, {0, 0}};
  return out;
}

}  // namespace

TEST_CASE("relative depths are truncated as Python does it") {
  const std::vector<double> thirds = {0.25, 0.5, 0.75}, odd = {0.7}, traps = {0.57};
  using Depths = std::vector<std::int64_t>;
  CHECK(feature::tap_depths(thirds, 2) == Depths{0, 1, 1});
  CHECK(feature::tap_depths(thirds, 16) == Depths{4, 8, 12});
  CHECK(feature::tap_depths(thirds, 22) == Depths{5, 11, 16});
  CHECK(feature::tap_depths(thirds, 36) == Depths{9, 18, 27});
  CHECK(feature::tap_depths(odd, 90) == Depths{62});
  CHECK(feature::tap_depths(traps, 100) == Depths{56});
  CHECK(feature::tap_depths(std::vector{0.0, 1.0}, 7) == Depths{0, 7});
  for (const double wrong : {-0.1, 1.01, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_WITH(feature::tap_depths(std::vector{wrong}, 4), Catch::Contains("[rlalgo.feature.3]"));
  CHECK_THROWS_WITH(feature::tap_depths({}, 4), Catch::Contains("[rlalgo.feature.3]"));
}

TEST_CASE("normalisation of the whole vector, or of every layer") {
  const auto network = table();
  model::TokenTree tree;
  tree.ids = {0, 1, 2};
  const std::vector<std::int64_t> first = {0}, second = {1}, zero = {2};
  const auto of = [&](Normalization n) { return feature::FeatureNetwork(network, {1, 2}, n)(tree); };
  const auto joint = of(Normalization::joint);
  CHECK(dot(values(joint.of(first)), values(joint.of(second))) == Approx(.923077).margin(5e-7));
  CHECK(dot(values(joint.of(first)), values(joint.of(first))) == Approx(1.0));
  const auto layers = of(Normalization::per_layer);
  CHECK(dot(values(layers.of(first)), values(layers.of(second))) == Approx(.96));
  CHECK(dot(values(layers.of(first)), values(layers.of(first))) == Approx(2.0));
  CHECK(values(joint.of(zero)) == std::vector<double>(4, 0.0));
  CHECK(network->asked == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("stretches are averaged after normalisation and stand side by side") {
  const auto network = table();
  model::TokenTree tree;
  tree.ids = {2, 0, 1};
  const auto tokens = feature::FeatureNetwork(network, {1})(tree);
  const auto place = [](std::int64_t i) { return i + 1; };
  const std::vector<feature::Stretch> both = {{0, 2}, {1, 2}};
  const auto pooled = tokens.pooled(both, place);
  const std::vector<double> expected = {.7, .7, .8, .6};
  REQUIRE(pooled.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(pooled[i] == Approx(expected[i]));
  CHECK(tokens.pooled(std::vector<feature::Stretch>{{2, 2}}, place) == std::vector{0.0, 0.0});
}

TEST_CASE("a feature is brought to length 1 unless it is 0") {
  std::vector<double> x = {3, 4}, zero = {0, 0};
  feature::normalize(x);
  feature::normalize(zero);
  CHECK(x[0] == Approx(.6));
  CHECK(zero == std::vector{0.0, 0.0});
}

TEST_CASE("relative depths that are one layer are told") {
  const std::vector<double> near = {0.98, 0.99}, apart = {0.0, 1.0}, same = {0.5, 0.5};
  CHECK(feature::repeated_layers(near, feature::tap_depths(near, 4)).find("the layers 3, 3 of") != std::string::npos);
  CHECK(feature::repeated_layers(apart, feature::tap_depths(apart, 4)).empty());
  CHECK(feature::repeated_layers(same, feature::tap_depths(same, 4)).empty());  // said when a file was read
}
