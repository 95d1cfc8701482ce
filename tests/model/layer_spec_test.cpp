#include <rlalgo/model/layer_spec.hpp>

#include <support/catch.hpp>

using rlalgo::model::LayerSpec;

TEST_CASE("a fresh layer is Llama's: norms before both branches, no bias, all of it rotated, no window") {
  const LayerSpec spec;
  CHECK(spec.norms.attention == "input_layernorm");
  CHECK(spec.norms.mlp == "post_attention_layernorm");
  CHECK(spec.norms.attention_output.empty());
  CHECK(spec.norms.mlp_output.empty());
  CHECK_FALSE((spec.qkv_bias || spec.output_bias || spec.mlp_bias || spec.fused_qkv || spec.fused_gate_up));
  CHECK(spec.head_norm == rlalgo::model::HeadNorm::none);
  CHECK(spec.residual_scale == 1.0);
  CHECK(spec.activation == rlalgo::model::Activation::silu);
  CHECK(spec.score_scale == 0.0);
  CHECK(spec.window == 0);
  CHECK(spec.rotary());
}

TEST_CASE("descriptions are equal where every part is") {
  LayerSpec a, b;
  CHECK((a == b));
  b.norms.mlp_output = "post_feedforward_layernorm";
  CHECK_FALSE(a == b);
  b = a;
  b.rope = LayerSpec::no_rope;
  CHECK_FALSE(a == b);
  CHECK_FALSE(b.rotary());
}
