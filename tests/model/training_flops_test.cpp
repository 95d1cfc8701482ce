#include <rlalgo/model/training_flops.hpp>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/token_tree.hpp>

#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>

using namespace rlalgo;

// Of 12 hidden, 4 heads and 2 key heads of 6, MLP 10, vocabulary 23, 2 layers: a layer has 12·24 (q) + 2·12·12 (k, v) + 24·12 (o) +
// 3·12·10 (MLP) = 1224 elements.
TEST_CASE("operations of a pass, by hand") {
  const auto decoder = model::random_decoder(model::parse_hf_config(support::small_config("qwen2"), "test"), 3);
  const std::vector<std::int32_t> prompt{1, 5, 9}, first{4, 2}, second{7, 7, 3};
  const std::vector<model::Sequence> rows{{prompt, first}, {prompt, second}};
  const model::TokenTree tree = model::build_tree(rows);
  // The last token of a row predicts nothing and is not laid out: 3 + 1 + 2 tokens, at positions 0, 1, 2, 3, 3, 4.
  REQUIRE(tree.tokens() == 6);
  const double seen = 1 + 2 + 3 + 4 + 4 + 5, heads = 24, layers = 2;
  const double attention = 12.0 * seen * heads * layers;
  CHECK(decoder->training_flops(tree) == 6.0 * 6 * 1224 * layers + 6.0 * 5 * 23 * 12 + attention);
  decoder->set_trained(false);
  CHECK(decoder->training_flops(tree) == 4.0 * 6 * 1224 * layers + 4.0 * 5 * 23 * 12 + attention);
  model::attach_lora(*decoder, {.r = 3, .alpha = 6, .target_modules = {"q_proj"}}, 7);
  CHECK(decoder->training_flops(tree) ==
        4.0 * 6 * 1224 * layers + 4.0 * 5 * 23 * 12 + attention + 6.0 * 6 * 3 * (24 + 12) * layers);
}

TEST_CASE("a window cuts what is seen, and of experts those that a token passes count") {
  model::Json json = support::small_config("qwen3_moe");
  const auto decoder = model::random_decoder(model::parse_hf_config(json, "test"), 3);
  const std::vector<std::int32_t> prompt{1, 5, 9}, completion{4, 2};
  const std::vector<model::Sequence> rows{{prompt, completion}};
  const model::TokenTree tree = model::build_tree(rows);
  // 864 of attention, 5·12 of the router, 2 of 5 experts of 3·12·6.
  const double layer = 864 + 60 + 2 * 216, attention = 12.0 * (1 + 2 + 3 + 4) * 24 * 2;
  CHECK(decoder->training_flops(tree) == Approx(6.0 * 4 * layer * 2 + 6.0 * 2 * 23 * 12 + attention));
}
