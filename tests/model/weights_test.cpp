#include <rlalgo/model/weights.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

TEST_CASE("weights are handles: a copy of the struct names the same memory") {
  rlalgo::model::DecoderWeights weights;
  weights.embedding = at::zeros({2, 3});
  weights.lm_head = weights.embedding;
  const rlalgo::model::DecoderWeights copy = weights;
  weights.embedding.fill_(1);
  CHECK(copy.lm_head.sum().item<float>() == 6);
  CHECK_FALSE(rlalgo::model::Linear().bias.defined());
}
