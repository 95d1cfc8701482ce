#include <rlalgo/model/merged_weights.hpp>

#include <map>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>

using namespace rlalgo;

namespace {

at::Tensor log_probs(model::Decoder& decoder) {
  const std::vector<std::int32_t> prompt = {1, 2, 3, 4}, completion = {5, 6, 7, 1};
  return decoder.score(model::build_tree(std::vector<model::Sequence>{{prompt, completion}}), {}).log_prob.detach();
}

std::unique_ptr<model::Decoder> decoder(const std::string& type) {
  auto json = rlalgo::support::small_config(type);
  json["tie_word_embeddings"] = false;
  return model::random_decoder(model::parse_hf_config(json, "test"), 3, at::kDouble);
}

}  // namespace

TEST_CASE("a base with the merged weights computes what the adapted model does") {
  for (const bool dora : {false, true})
    for (const model::LoraInit init : {model::LoraInit::random, model::LoraInit::pissa}) {
      if (dora && init == model::LoraInit::pissa) continue;
      const auto adapted = decoder("llama");
      const auto base = decoder("llama");
      const at::Tensor before = log_probs(*base);
      model::attach_lora(*adapted,
                         {.r = 3,
                          .alpha = 5,
                          .target_modules = {"q_proj", "down_proj"},
                          .modules_to_save = {"lm_head"},
                          .use_dora = dora,
                          .init = init},
                         7);
      {
        const c10::NoGradGuard no_grad;
        for (auto& p : adapted->parameters())
          p.value.add_(at::arange(p.value.numel(), at::kDouble).sin().view_as(p.value), 0.05);
      }
      std::map<std::string, at::Tensor> merged;
      for (const auto& one : model::merged_weights(*adapted)) merged[one.name] = one.make();
      const std::size_t layers = adapted->config().layers;
      CHECK(merged.size() == 2 * layers + 1);
      CHECK(merged.contains("lm_head.weight"));
      {
        const c10::NoGradGuard no_grad;
        for (const auto& [name, value] : base->named_tensors())
          if (merged.contains(name)) at::Tensor(value).copy_(merged[name]);
      }
      const at::Tensor after = log_probs(*base);
      CHECK((after - log_probs(*adapted)).abs().max().item<double>() < 1e-10);
      CHECK((after - before).abs().max().item<double>() > 1e-3);
    }
  CHECK(model::merged_weights(*decoder("llama")).empty());
}
