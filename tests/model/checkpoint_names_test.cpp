#include <rlalgo/model/checkpoint_names.hpp>

#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

TEST_CASE("wrappers leave a name, wherever they stand") {
  CHECK(model::without_wrappers("module.module.x") == "x");
  CHECK(model::without_wrappers("model._orig_mod.layers.0._checkpoint_wrapped_module.mlp") == "model.layers.0.mlp");
  CHECK(model::without_wrappers("model.x_orig_mod.y") == "model.x_orig_mod.y");
  CHECK(model::without_wrappers("_fsdp_wrapped_module.module.lm_head.weight") == "lm_head.weight");
  CHECK(model::without_wrappers("model.module.x") == "model.module.x");
}

TEST_CASE("the place of the layers tells the prefix of a model's names") {
  const std::string norm = "layers.0.input_layernorm.weight";
  using Names = std::vector<std::string>;
  const auto map = [](const Names& names) { return model::model_tensor_names(names, "here"); };
  CHECK(map({"model." + norm, "lm_head.weight"}) ==
        model::NameMap{{"model." + norm, "model." + norm}, {"lm_head.weight", "lm_head.weight"}});
  CHECK(map({norm, "embed_tokens.weight", "norm.weight", "score.weight"}) ==
        model::NameMap{{"model." + norm, norm},
                       {"model.embed_tokens.weight", "embed_tokens.weight"},
                       {"model.norm.weight", "norm.weight"},
                       {"score.weight", "score.weight"}});
  CHECK(map({"a.model." + norm, "a.lm_head.weight", "v_head.weight"}) ==
        model::NameMap{{"model." + norm, "a.model." + norm},
                       {"lm_head.weight", "a.lm_head.weight"},
                       {"v_head.weight", "v_head.weight"}});
  // Of two models none is meant; an adapter's file is left alone.
  CHECK(map({"a.model." + norm, "b.model." + norm}).contains("a.model." + norm));
  CHECK(map({"base_model.model.model." + norm}).contains("base_model.model.model." + norm));
  CHECK(lacks(raised_by([&] {
                (void)map({"model." + norm, "lm_head.weight", "module.lm_head.weight"});
              }),
              {"model.14", "module.lm_head.weight", "here"}) == "");
}

TEST_CASE("heads that predict several tokens are no second backbone") {
  const auto map = model::model_tensor_names(
      {"mtp.layers.0.input_layernorm.weight", "mtp.norm.weight", "model.language_model.layers.0.input_layernorm.weight",
       "model.language_model.norm.weight", "model.visual.norm.weight"},
      "here");
  const model::NameMap expected = {
      {"mtp.layers.0.input_layernorm.weight", "mtp.layers.0.input_layernorm.weight"},
      {"mtp.norm.weight", "mtp.norm.weight"},
      {"model.layers.0.input_layernorm.weight", "model.language_model.layers.0.input_layernorm.weight"},
      {"model.norm.weight", "model.language_model.norm.weight"},
      {"model.visual.norm.weight", "model.visual.norm.weight"}};
  CHECK(map == expected);
}

TEST_CASE("an adapter's tensors get PEFT's names") {
  const std::string prefix = "base_model.model.model.layers.0.";
  const auto one = [](const std::string& name) { return model::adapter_tensor_names({name}, "here").begin()->first; };
  CHECK(one(prefix + "q_proj.lora_A.weight") == prefix + "q_proj.lora_A.weight");
  CHECK(one(prefix + "q_proj.lora_B.default.weight") == prefix + "q_proj.lora_B.weight");
  CHECK(one(prefix + "q_proj.lora_magnitude_vector.default.weight") == prefix + "q_proj.lora_magnitude_vector");
  CHECK(one("base_model.model.lm_head.modules_to_save.default.weight") == "base_model.model.lm_head.weight");
  CHECK(one("layers.0.q_proj.lora_A.weight") == prefix + "q_proj.lora_A.weight");
  CHECK(one("model.layers.0.q_proj.lora_A.weight") == prefix + "q_proj.lora_A.weight");
  CHECK(one("base_model.model.model.language_model.layers.0.q_proj.lora_A.weight") == prefix + "q_proj.lora_A.weight");
  CHECK(one("base_model.model.lm_head.base_layer.weight") == "base_model.model.lm_head.base_layer.weight");
  const auto both = model::adapter_tensor_names(
      {"base_model.model.lm_head.weight", "base_model.model.lm_head.modules_to_save.weight"}, "here");
  CHECK(both.size() == 2);
  CHECK(lacks(raised_by([&] {
                (void)model::adapter_tensor_names({prefix + "q.lora_A.a.weight", prefix + "q.lora_A.b.weight"}, "here");
              }),
              {"model.30", "lora_A.b.weight"}) == "");
}
