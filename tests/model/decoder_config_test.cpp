#include <rlalgo/model/decoder_config.hpp>

#include <support/catch.hpp>

TEST_CASE("a fresh configuration has no optional part switched on") {
  const rlalgo::model::DecoderConfig config;
  CHECK_FALSE(config.qkv_bias);
  CHECK_FALSE(config.output_bias);
  CHECK_FALSE(config.mlp_bias);
  CHECK_FALSE(config.qk_norm);
  CHECK_FALSE(config.tied_embeddings);
  CHECK(config.rope.kind == rlalgo::model::RopeConfig::Kind::standard);
  CHECK(config.rope.theta == 10000.0);
}
