#include <rlalgo/model/quantised_files.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::lacks;
using support::raised_by;
using support::ScratchDirectory;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/quantised";

struct Case {
  const char* name;
  model::Quantisation how;
  bool whole = true;     // there is the model before it was quantised
  std::size_t maps = 7;  // that are quantised
};

std::vector<Case> cases() {
  return {{"llama_nf4", {}},
          {"qwen2_int8", {.code = model::WeightCode::int8}},
          {"gemma2_fp4", {.code = model::WeightCode::fp4, .nested = false}, false},
          {"phi3_nf4", {.skip = {"lm_head", "model.layers.1.mlp"}}, true, 6},
          {"qwen3_moe_nf4", {}, true, 11}};
}

model::TokenTree tree_of(const at::Tensor& ids) {
  const std::int64_t* const from = ids.const_data_ptr<std::int64_t>();
  static std::vector<std::int32_t> prompt, completion;
  prompt = {static_cast<std::int32_t>(from[0])};
  completion.clear();
  for (std::int64_t i = 1; i < ids.numel(); ++i) completion.push_back(static_cast<std::int32_t>(from[i]));
  const std::vector<model::Sequence> rows = {{.prompt = prompt, .completion = completion}};
  return model::build_tree(rows, {});
}

std::size_t quantised_maps(const model::Decoder& decoder) {
  std::size_t out = 0;
  model::visit_maps(decoder.config(), decoder.weights(), [&](const std::string&, const model::Linear& map, auto, bool) {
    out += map.quantised ? 1 : 0;
    CHECK((map.quantised != nullptr) == model::is_stand_in(map.weight));
  });
  return out;
}

void check_numbers(model::Decoder& decoder, const std::filesystem::path& folder) {
  const auto expected = model::read_safetensors(folder / "expected.safetensors");
  const model::Scores scores = decoder.score(tree_of(expected.at("ids")), {});
  CHECK((scores.log_prob - expected.at("log_probs")).abs().max().item<double>() < 1e-5);
  scores.log_prob.sum().neg().backward();
  std::size_t checked = 0;
  for (const auto& p : decoder.parameters()) {
    if (!expected.contains("grad." + p.name)) continue;
    INFO(p.name);
    const at::Tensor want = expected.at("grad." + p.name);
    CHECK((p.value.grad() - want).abs().max().item<double>() < 2e-5 * (1 + want.abs().max().item<double>()));
    ++checked;
  }
  CHECK(checked >= 4);
}

}  // namespace

TEST_CASE(
    "checkpoints that bitsandbytes quantised have the log-probs and gradients that transformers computes with them") {
  for (const Case& one : cases()) {
    INFO(one.name);
    const auto decoder = model::load_decoder(golden / one.name);
    CHECK(quantised_maps(*decoder) == one.maps);
    check_numbers(*decoder, golden / one.name);
  }
}

TEST_CASE("a model that is quantised when it is loaded is the one that bitsandbytes makes of it") {
  for (const Case& one : cases()) {
    if (!one.whole) continue;
    INFO(one.name);
    const auto decoder = model::load_decoder(golden / (std::string(one.name) + "_whole"), {.quantisation = one.how});
    CHECK(quantised_maps(*decoder) == one.maps);
    check_numbers(*decoder, golden / one.name);
    const auto read = model::load_decoder(golden / one.name);
    std::vector<const model::QuantisedWeight*> theirs;
    model::visit_maps(read->config(), read->weights(), [&](const std::string&, const model::Linear& map, auto, bool) {
      if (map.quantised) theirs.push_back(map.quantised.get());
    });
    auto next = theirs.begin();
    model::visit_maps(decoder->config(), decoder->weights(),
                      [&](const std::string& path, const model::Linear& map, auto, bool) {
                        if (!map.quantised) return;
                        INFO(path);
                        const model::QuantisedWeight &a = *map.quantised, &b = **next++;
                        CHECK(a.codes().flatten().equal(b.codes().flatten()));
                        CHECK(a.scales().equal(b.scales()));
                        CHECK(a.nested().offset == b.nested().offset);
                      });
  }
}

TEST_CASE("maps that stay whole are named as transformers reads the names, and a name that is nobody's is refused") {
  const auto count = [](std::vector<std::string> skip) {
    return quantised_maps(*model::load_decoder(golden / "phi3_nf4_whole",
                                               {.quantisation = model::Quantisation{.skip = std::move(skip)}}));
  };
  CHECK(count({}) == 8);
  CHECK(count({"lm_head"}) == 8);
  CHECK(count({"o_proj"}) == 6);
  CHECK(count({"model.layers.0"}) == 4);
  CHECK(count({"model.layers.\\d.mlp.down_proj", "lm_head"}) == 6);
  CHECK(count({"model"}) == 0);
  // Neither the beginning of a path nor its end.
  CHECK(lacks(raised_by([&] { (void)count({"layers.1.mlp"}); }), {"model.47", "layers.1.mlp"}) == "");
  CHECK(lacks(raised_by([&] { (void)count({"model.layers.1.ml"}); }), {"model.47"}) == "");
}

TEST_CASE(
    "experts are quantised where that is asked for, routers never; what they compute is what their codes stand for") {
  const auto bits =
      model::load_decoder(golden / "qwen3_moe_nf4_whole", {.quantisation = model::Quantisation{.experts = true}});
  CHECK(quantised_maps(*bits) == 11 + 4 * 3);
  CHECK_FALSE(bits->weights().layers[0].router.quantised);
  model::DecoderWeights dense = bits->weights();
  model::visit_maps(bits->config(), dense, [](const std::string&, model::Linear& map, auto, bool) {
    if (!map.quantised) return;
    map.weight = map.quantised->dense(at::kFloat);
    map.quantised = nullptr;
  });
  model::Decoder plain(bits->hf_config(), dense);
  const auto expected = model::read_safetensors(golden / "qwen3_moe_nf4/expected.safetensors");
  const auto tree = tree_of(expected.at("ids"));
  CHECK((bits->score(tree, {}).log_prob - plain.score(tree, {}).log_prob).abs().max().item<double>() < 1e-5);
}

TEST_CASE("what is malformed is said with its tensor") {
  const auto tensors = model::read_safetensors(golden / "llama_nf4/model.safetensors");
  const std::string weight = "model.layers.0.self_attn.q_proj.weight";
  const auto error_with = [&](const std::string& name, const at::Tensor& value) {
    const ScratchDirectory scratch;
    std::filesystem::copy_file(golden / "llama_nf4/config.json", scratch.path() / "config.json");
    std::vector<model::NamedTensor> changed;
    for (const auto& [key, tensor] : tensors)
      if (key != name) changed.emplace_back(key, tensor);
    if (value.defined()) changed.emplace_back(name, value);
    model::write_safetensors(scratch.path() / "model.safetensors", changed);
    return raised_by([&] { (void)model::load_decoder(scratch.path()); });
  };
  const auto bytes = [](const std::string& text) {
    at::Tensor out = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
    std::copy(text.begin(), text.end(), out.mutable_data_ptr<std::uint8_t>());
    return out;
  };
  const std::string state = weight + ".quant_state.bitsandbytes__nf4";
  const auto object = [&](const char* from, const char* to) {
    const at::Tensor& given = tensors.at(state);
    std::string text(reinterpret_cast<const char*>(given.const_data_ptr()), static_cast<std::size_t>(given.numel()));
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return bytes(text.replace(at, std::string(from).size(), to));
  };
  CHECK(lacks(error_with(weight, {}), {"model.49", weight}) == "");
  CHECK(lacks(error_with(weight, at::zeros({7, 1}, at::kByte)), {"model.49", "7 bytes", "2048"}) == "");
  CHECK(lacks(error_with(weight + ".absmax", {}), {"model.49", "no " + weight + ".absmax"}) == "");
  CHECK(lacks(error_with(weight + ".absmax", at::zeros({64})), {"model.49", "Float", "Byte"}) == "");
  CHECK(lacks(error_with(weight + ".nested_absmax", at::zeros({3})), {"model.49", "3 elements"}) == "");
  CHECK(lacks(error_with(weight + ".quant_map", at::zeros({16})), {"model.49", "quant_map"}) == "");
  CHECK(lacks(error_with(state, bytes("{}")), {"model.49", "blocksize missing"}) == "");
  CHECK(lacks(error_with(state, bytes("no")), {"model.49", weight}) == "");
  CHECK(lacks(error_with(state, object("[64, 64]", "[64, 32]")), {"model.49", "[64,32]", "[64,64]"}) == "");
  CHECK(lacks(error_with(state, object("\"nf4\"", "\"fp4\"")), {"model.49", "fp4"}) == "");
  CHECK(lacks(error_with(state, object("\"blocksize\": 64", "\"blocksize\": 63")), {"model.49", "63"}) == "");
  // Without its object the codes are a weight of another shape.
  CHECK(lacks(error_with(state, {}), {"model.21", weight}) == "");
}

TEST_CASE("an output embedding in bits is made whole") {
  const auto tensors = model::read_safetensors(golden / "qwen2_int8/model.safetensors");
  const ScratchDirectory scratch;
  model::Json config = model::Json::parse(std::ifstream(golden / "qwen2_int8/config.json"));
  config["tie_word_embeddings"] = false;
  std::ofstream(scratch.path() / "config.json") << config;
  std::vector<model::NamedTensor> changed(tensors.begin(), tensors.end());
  const model::QuantisedWeight head = model::quantise(at::randn({65, 64}), {.code = model::WeightCode::int8}, "w");
  changed.emplace_back("lm_head.weight", head.codes());
  changed.emplace_back("lm_head.SCB", head.scales());
  model::write_safetensors(scratch.path() / "model.safetensors", changed);
  const auto decoder = model::load_decoder(scratch.path());
  CHECK(decoder->weights().lm_head.equal(head.dense(at::kFloat)));
  CHECK(decoder->weights().lm_head.requires_grad());
}

TEST_CASE("an adapter over bits: what it may and may not do") {
  const auto load = [] { return model::load_decoder(golden / "llama_nf4"); };
  const auto lora = [](model::LoraConfig config) {
    config.r = 4, config.alpha = 8, config.every_linear = true;
    return config;
  };
  CHECK(lacks(raised_by([&] { model::attach_lora(*load(), lora({.init = model::LoraInit::pissa}), 1); }),
              {"model.24", "pissa"}) == "");
  CHECK(lacks(raised_by([&] {
                model::attach_lora(
                    *load(), {.r = 4, .alpha = 8, .target_modules = {"q_proj"}, .modules_to_save = {"down_proj"}}, 1);
              }),
              {"model.46", "down_proj"}) == "");
  CHECK(lacks(raised_by([&] { load()->train_only({"model.layers.0.mlp.up_proj"}); }), {"model.46", "up_proj"}) == "");
  auto decoder = load();
  model::attach_lora(*decoder, lora({.use_dora = true}), 1);
  // DoRA's magnitudes are the rows of the weight, so at first nothing has changed.
  const auto expected = model::read_safetensors(golden / "llama_nf4/expected.safetensors");
  CHECK(
      (decoder->score(tree_of(expected.at("ids")), {}).log_prob - expected.at("log_probs")).abs().max().item<double>() <
      1e-5);
  CHECK((decoder->without_adapter()->score(tree_of(expected.at("ids")), {}).log_prob - expected.at("log_probs"))
            .abs()
            .max()
            .item<double>() < 1e-5);
  CHECK((load()->frozen_copy()->score(tree_of(expected.at("ids")), {}).log_prob - expected.at("log_probs"))
            .abs()
            .max()
            .item<double>() < 1e-5);
}
