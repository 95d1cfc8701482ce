#include <rlalgo/model/rope.hpp>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("standard frequencies are powers of theta") {
  const auto inv = model::rope_frequencies({.theta = 100.0}, 4);
  CHECK(inv[0].item<float>() == 1.0F);
  CHECK(inv[1].item<float>() == Approx(0.1));
}

// θ = 10000, D = 8: inv = 1, 0.1, 0.01, 0.001 with wavelengths 6.28, 62.8, 628, 6283. With O = 1024, low 1, high 4 the
// bounds are 256 and 1024: the first two stay, the last is divided by 8, the third is between with
// s = (1024/628.3185 − 1)/3 = 0.2099, (1 − s)·0.01/8 + s·0.01 = 0.0030867.
TEST_CASE("llama3 frequencies: kept, blended, divided") {
  const auto inv = model::rope_frequencies({.kind = model::RopeConfig::Kind::llama3,
                                            .theta = 10000.0,
                                            .factor = 8.0,
                                            .low_freq_factor = 1.0,
                                            .high_freq_factor = 4.0,
                                            .original_max_position_embeddings = 1024.0},
                                           8);
  CHECK(inv[0].item<float>() == 1.0F);
  CHECK(inv[1].item<float>() == Approx(0.1));
  const double s = (1024.0 / (2 * M_PI / 0.01) - 1) / 3;
  CHECK(inv[2].item<float>() == Approx((1 - s) * 0.01 / 8 + s * 0.01));
  CHECK(inv[3].item<float>() == Approx(0.001 / 8));
}

TEST_CASE("rotation turns the halves against each other, and back") {
  const auto inv = model::rope_frequencies({.theta = 100.0}, 4);
  const std::vector<std::int64_t> positions = {0, 3, 7};
  const auto table = model::rope_table(inv, positions);
  const auto x = at::randn({3, 2, 4}, at::kDouble);
  auto y = x.clone();
  model::apply_rope(y, table);
  CHECK(y[0].equal(x[0]));
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 2; ++i) {
      const double angle = 3 * std::pow(100.0, -i / 2.0), a = x[1][h][i].item<double>(),
                   b = x[1][h][i + 2].item<double>();
      CHECK(y[1][h][i].item<double>() == Approx(a * std::cos(angle) - b * std::sin(angle)).epsilon(1e-5));
      CHECK(y[1][h][i + 2].item<double>() == Approx(b * std::cos(angle) + a * std::sin(angle)).epsilon(1e-5));
    }
  }
  // The backward rotation is the transpose: ⟨R x, z⟩ = ⟨x, Rᵀ z⟩.
  const auto z = at::randn({3, 2, 4}, at::kDouble);
  auto back = z.clone();
  model::apply_rope(back, table, model::Rotation::backward);
  CHECK((y * z).sum().item<double>() == Approx((x * back).sum().item<double>()).epsilon(1e-12));
}
