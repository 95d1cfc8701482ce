// The adapters of a decoding pass: the products that they are, and when a graph of one serves another.
#include <rlalgo/inference/detail/pass_adapters.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/inference/detail/decode_pass.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using inference::detail::LayerAdapters;

namespace {

std::unique_ptr<model::Decoder> adapted(const std::string& family, model::LoraConfig lora) {
  auto out = model::load_decoder(std::filesystem::path(support::test_dir) / "golden/model" / family);
  lora.init = model::LoraInit::random;
  model::attach_lora(*out, lora, 7);
  return out;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kFloat).sub(b.to(at::kFloat)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("maps that read the same are one A and one B, each map in its own rows and columns, scaled") {
  const auto decoder = adapted("qwen2", {.r = 4,
                                         .alpha = 6,
                                         .target_modules = {"q_proj", "v_proj", "up_proj", "o_proj"},
                                         .rank_pattern = {{"v_proj", 3}},
                                         .use_rslora = true});
  const c10::NoGradGuard no_grad;
  for (const model::LayerWeights& w : decoder->weights().layers) {
    const LayerAdapters found = inference::detail::layer_adapters(w);
    CHECK(found.rank() == 7);
    CHECK(found.qkv.rank() == 7);
    CHECK(found.gate_up.rank() == 4);
    CHECK(found.o.rank() == 4);
    CHECK_FALSE(found.down.defined());
    const auto delta = [](const model::Lora& lora) { return lora.b.matmul(lora.a).mul(lora.scale); };
    const at::Tensor qkv = at::cat({delta(w.q_proj.lora), at::zeros_like(w.k_proj.weight), delta(w.v_proj.lora)}),
                     gate_up = at::cat({at::zeros_like(w.gate_proj.weight), delta(w.up_proj.lora)});
    const auto product = [](const inference::detail::LowRankMaps& maps) {
      return maps.b.to(at::kFloat).matmul(maps.a.to(at::kFloat));
    };
    for (const auto& [maps, exact] :
         {std::pair(found.qkv, qkv), std::pair(found.gate_up, gate_up), std::pair(found.o, delta(w.o_proj.lora))}) {
      CHECK(product(maps).sizes() == exact.sizes());
      CHECK(distance(product(maps), exact) < 0.02 * exact.abs().max().item<double>());
      CHECK(exact.abs().max().item<double>() > 0.0);
    }
  }
}

TEST_CASE("maps that are one in the checkpoint have one adapter") {
  const auto decoder = adapted("phi3", {.r = 4, .alpha = 8, .target_modules = {"qkv_proj", "gate_up_proj"}});
  const LayerAdapters found = inference::detail::layer_adapters(decoder->weights().layers[0]);
  CHECK(found.qkv.rank() == 4);
  CHECK(found.gate_up.rank() == 4);
  CHECK(found.qkv.b.size(0) == decoder->weights().layers[0].qkv_proj.weight.size(0));
}

TEST_CASE("a graph of an adapter does not serve one of another rank that lies where it lay, nor the base") {
  const auto decoder = adapted("qwen2", {.r = 4, .alpha = 8, .target_modules = {"q_proj", "up_proj"}});
  std::vector<LayerAdapters> adapters, shorter;
  for (const model::LayerWeights& layer : decoder->weights().layers) {
    adapters.push_back(inference::detail::layer_adapters(layer));
    shorter.push_back(adapters.back());
    shorter.back().qkv = {.a = shorter.back().qkv.a.narrow(0, 0, 2), .b = shorter.back().qkv.b.narrow(1, 0, 2)};
  }
  const auto places = [&](std::span<const LayerAdapters> some) {
    return inference::detail::places_of(decoder->weights(), some);
  };
  CHECK(places(adapters) == places(adapters));
  CHECK(places(adapters) != places(shorter));
  CHECK(places(adapters) != places({}));
}
