// Draws by the kernel of cuda/draw.cuh, on the host (support/host_kernels.cpp), against TokenDraw: given equal logits, the
// CPU's tokens, whichever of its kernels drew them.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/inference/sampling.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the draws of a device are those of the engine") {
  REQUIRE(cuda::compiled() != nullptr);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  inference::TokenDraw draw;
  for (const std::int64_t vocabulary : {3, 512, 700, 5000}) {
    const std::int64_t rows = 40;
    std::vector<float> logits(static_cast<std::size_t>(rows * vocabulary));
    for (float& x : logits) x = normal(random);
    for (const double temperature : {0.0, 0.7, 1.0, 1.7}) {
      const inference::SamplingConfig sampling{.temperature = temperature};
      std::vector<cuda::DrawKeyed> keys;
      std::vector<inference::Drawn> expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        const inference::DrawKey key{.seed = 77, .step = 5};
        const auto index = static_cast<std::uint64_t>(r / 4);
        const auto position = static_cast<std::uint32_t>(r % 4);
        keys.push_back({.seed = key.seed,
                        .step = key.step,
                        .index = index,
                        .position = position,
                        .scale = temperature == 0.0 ? 0.0F : static_cast<float>(1.0 / temperature)});
        const std::span<const float> row(logits.data() + r * vocabulary, static_cast<std::size_t>(vocabulary));
        expected.push_back(draw(row, sampling, {}, {}, inference::draw_uniform(key, index, position)));
      }
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows), -7);
      std::vector<float> log_probs(static_cast<std::size_t>(rows), 1.0F);
      REQUIRE(cuda::compiled()->draw({.logits = logits.data(),
                                      .keys = keys.data(),
                                      .tokens = tokens.data(),
                                      .log_probs = log_probs.data(),
                                      .rows = rows,
                                      .vocabulary = vocabulary,
                                      .stride = vocabulary},
                                     nullptr) == 0);
      for (std::size_t r = 0; r < expected.size(); ++r) {
        CAPTURE(vocabulary, temperature, r);
        CHECK(tokens[r] == expected[r].id);
        CHECK(std::abs(log_probs[r] - expected[r].log_prob) < 2e-6F * (1.0F + std::abs(expected[r].log_prob)));
      }
    }
  }
}
