#include <rlalgo/inference/merged_adapter.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/quantisation.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::unique_ptr<model::Decoder> adapted(const std::string& family, model::LoraConfig lora,
                                        model::LoadOptions load = {}) {
  auto decoder = model::load_decoder(golden / family, load);
  lora.r = 4;
  lora.alpha = 8;
  model::attach_lora(*decoder, lora, 7);
  // What B holds at the start changes nothing.
  double value = 0.03;
  for (const auto& p : decoder->parameters())
    if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(value = -value);
  return decoder;
}

std::vector<data::Completion> drawn(const model::Decoder& decoder, const model::DecoderWeights& weights) {
  inference::LocalEngine engine(decoder.config(), weights);
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 3}};
  return engine.generate(requests, {.max_new_tokens = 10}, {.seed = 3}).front();
}

void check_same(const std::vector<data::Completion>& a, const std::vector<data::Completion>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t c = 0; c < a.size(); ++c) {
    CHECK(a[c].ids == b[c].ids);
    for (std::size_t t = 0; t < a[c].log_probs.size(); ++t)
      CHECK(std::abs(a[c].log_probs[t] - b[c].log_probs[t]) < 1e-4);
  }
}

}  // namespace

TEST_CASE("with its adapter multiplied in, a model in float32 draws what it draws with the adapter apart") {
  const std::vector<std::string> some = {"q_proj", "v_proj", "down_proj"};
  const std::vector<std::pair<std::string, model::LoraConfig>> cases = {
      {"qwen2", {.target_modules = some}},
      {"qwen2", {.target_modules = some, .use_dora = true}},
      {"qwen2", {.target_modules = some, .init = model::LoraInit::pissa}},
      {"phi3", {.target_modules = {"qkv_proj", "gate_up_proj", "o_proj"}}},
      {"gemma3", {.target_modules = {"k_proj", "gate_proj"}}},
      {"qwen3_5", {.target_modules = {"in_proj_qkv", "out_proj", "up_proj"}}},
  };
  for (const auto& [family, lora] : cases) {
    INFO(family);
    const auto decoder = adapted(family, lora);
    inference::MergedAdapter merged;
    merged.update(decoder->weights());
    for (const model::LayerWeights& layer : merged.weights().layers)
      for (const model::Linear* const map :
           {&layer.q_proj, &layer.v_proj, &layer.down_proj, &layer.qkv_proj, &layer.gate_up_proj, &layer.k_proj,
            &layer.gate_proj, &layer.in_proj_qkv, &layer.o_proj})
        CHECK_FALSE(map->lora.defined());
    const auto apart = drawn(*decoder, decoder->weights());
    check_same(apart, drawn(*decoder, merged.weights()));
    const auto base = model::load_decoder(golden / family);
    CHECK(drawn(*base, base->weights()).front().log_probs != apart.front().log_probs);
  }
}

TEST_CASE("copies lie one behind the other where maps are multiplied as one, and are written where they are") {
  const auto decoder = adapted("qwen2", {.target_modules = {"v_proj", "down_proj"}});
  const model::DecoderWeights& from = decoder->weights();
  inference::MergedAdapter merged;
  merged.update(from);
  const model::LayerWeights &own = from.layers[1], &copy = merged.weights().layers[1];
  // q and k have no adapter and are copied with v; gate, up and o are shared.
  CHECK(copy.k_proj.weight.const_data_ptr<float>() ==
        copy.q_proj.weight.const_data_ptr<float>() + copy.q_proj.weight.numel());
  CHECK(copy.v_proj.weight.const_data_ptr<float>() ==
        copy.k_proj.weight.const_data_ptr<float>() + copy.k_proj.weight.numel());
  CHECK(copy.q_proj.weight.equal(own.q_proj.weight));
  CHECK(copy.q_proj.weight.const_data_ptr() != own.q_proj.weight.const_data_ptr());
  CHECK(copy.gate_proj.weight.const_data_ptr() == own.gate_proj.weight.const_data_ptr());
  CHECK(copy.o_proj.weight.const_data_ptr() == own.o_proj.weight.const_data_ptr());
  CHECK(own.v_proj.lora.defined());
  std::size_t bytes = 0;
  for (const model::LayerWeights& layer : from.layers)
    for (const model::Linear* const map : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.down_proj})
      bytes += map->weight.nbytes();
  CHECK(inference::merged_adapter_bytes(from) == bytes);

  const void* const place = copy.v_proj.weight.const_data_ptr();
  const tensor::Tensor before = copy.v_proj.weight.clone();
  own.v_proj.lora.b.detach().mul_(2.0);
  merged.update(from);
  const tensor::Tensor& after = merged.weights().layers[1].v_proj.weight;
  CHECK(after.const_data_ptr() == place);
  // W + 2 s·B A = 2 (W + s·B A) − W
  CHECK(after.sub(before.mul(2.0).sub(own.v_proj.weight)).abs().max().item<float>() < 1e-5F);
}

TEST_CASE("what cannot be merged keeps its adapter: maps in bits, the head, experts") {
  const auto bits =
      adapted("qwen2", {.target_modules = {"q_proj", "down_proj"}}, {.quantisation = model::Quantisation{}});
  CHECK(inference::merged_adapter_bytes(bits->weights()) == 0);
  inference::MergedAdapter merged;
  merged.update(bits->weights());
  CHECK(merged.weights().layers[0].q_proj.lora.defined());
  const auto head = adapted("qwen2", {.target_modules = {"lm_head", "q_proj"}});
  inference::MergedAdapter other;
  other.update(head->weights());
  CHECK(other.weights().lm_head_lora.defined());
  CHECK_FALSE(other.weights().layers[0].q_proj.lora.defined());
  check_same(drawn(*head, head->weights()), drawn(*head, other.weights()));
  const auto plain = model::load_decoder(golden / "qwen2");
  CHECK(inference::merged_adapter_bytes(plain->weights()) == 0);
}

TEST_CASE("in bfloat16 a merged weight is the adapter's sum, rounded once") {
  const auto decoder = adapted("qwen2", {.target_modules = {"o_proj"}}, {.dtype = at::kBFloat16});
  const model::Linear& map = decoder->weights().layers[0].o_proj;
  inference::MergedAdapter merged;
  merged.update(decoder->weights());
  const tensor::Tensor added = map.lora.b.detach().mm(map.lora.a.detach()).mul(map.lora.scale),
                       exact = map.weight.to(at::kFloat).add(added);
  const tensor::Tensor& copy = merged.weights().layers[0].o_proj.weight;
  CHECK(copy.scalar_type() == at::kBFloat16);
  CHECK(copy.to(at::kFloat).sub(exact).abs().max().item<float>() <= exact.abs().max().item<float>() / 256.0F);
}
