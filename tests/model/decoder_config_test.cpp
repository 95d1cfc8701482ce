#include <rlalgo/model/decoder_config.hpp>

#include <support/catch.hpp>

TEST_CASE("a fresh configuration has no optional part switched on") {
  const rlalgo::model::DecoderConfig config;
  CHECK_FALSE(config.tied_embeddings);
  CHECK(config.embedding_scale == 1.0);
  REQUIRE(config.ropes.size() == 1);
  CHECK((config.ropes[0] == rlalgo::model::RopeConfig{}));
  CHECK(config.ropes[0].theta == 10000.0);
  CHECK((config.spec(7) == rlalgo::model::LayerSpec{}));
}

TEST_CASE("layers have a description each, or one for all") {
  rlalgo::model::DecoderConfig config;
  config.specs.resize(3);
  config.specs[1].window = 5;
  CHECK(config.spec(0).window == 0);
  CHECK(config.spec(1).window == 5);
  config.specs = {config.specs[1]};
  CHECK(config.spec(2).window == 5);
}
