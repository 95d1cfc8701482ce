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

TEST_CASE("a table has one row per position, and lies where it is wanted") {
  const auto inv = model::rope_frequencies({.theta = 100.0}, 4);
  const std::vector<std::int64_t> positions = {0, 3, 7};
  const auto table = model::rope_table(inv, positions, {.attention_factor = 2.0});
  CHECK(table.cosine.sizes() == at::IntArrayRef{3, 2});
  CHECK(table.cosine[1][0].item<float>() == Approx(2 * std::cos(3.0)));
  CHECK(table.sine[2][1].item<float>() == Approx(2 * std::sin(0.7)));
  const auto far = model::rope_table(inv, positions, {.attention_factor = 2.0}, at::kMeta);
  CHECK(far.sine.is_meta());
  CHECK(far.sine.sizes() == table.sine.sizes());
}

TEST_CASE("angles that a device multiplies are those of the host, to the bit") {
  const auto inv = model::rope_frequencies({.theta = 1e4}, 16);
  const std::vector<std::int64_t> positions = {0, 1, 77, 4095, 131071};
  const model::RopeConfig rope{.attention_factor = 1.5, .interleaved = true};
  const auto expected = model::rope_table(inv, positions, rope);
  tensor::HostBlock block(inv.options());
  const auto here = model::rope_angles(inv, positions, block);
  block.send();
  CHECK(model::rope_table(here, rope).cosine.equal(expected.cosine));
  std::vector<float> each(positions.begin(), positions.end());
  const model::RopeAngles apart{at::tensor(each).unsqueeze(1), inv.unsqueeze(0)};  // as on another device
  CHECK(model::rope_table(apart, rope).cosine.equal(expected.cosine));
  CHECK(model::rope_table(apart, rope).sine.equal(expected.sine));
  CHECK(model::rope_table(apart, rope).interleaved);
  tensor::HostBlock nowhere(inv.options().device(at::kMeta));
  const auto meta = model::rope_angles(inv, positions, nowhere);
  nowhere.send();
  CHECK(model::rope_table(meta, rope).sine.sizes() == expected.sine.sizes());
  CHECK(model::rope_table(meta, rope).sine.is_meta());
}
