#include <rlalgo/model/detail/families.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/model/save.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using model::Json;

namespace {

model::DecoderConfig parse(const Json& json) { return model::parse_hf_config(json, "config.json").decoder; }

std::string error(const Json& json) {
  return support::raised_by([&] { (void)parse(json); });
}

// What of a family the files of tests/golden hold, which other tests compare with: decoder_test.cpp, router_load_test.cpp and
// adapter_files_test.cpp.
std::string compared(std::string_view family) {
  const std::filesystem::path golden = std::filesystem::path(support::test_dir) / "golden";
  std::set<std::string> checkpoints;
  std::size_t gradients = 0, adapters = 0;
  bool balance = false;
  for (const auto& folder : std::filesystem::directory_iterator(golden / "model")) {
    if (Json::parse(std::ifstream(folder.path() / "config.json")).at("model_type") != family) continue;
    checkpoints.insert(folder.path().filename().string());
    const model::SafetensorsFile expected(folder.path() / "expected.safetensors");
    for (const auto& [name, entry] : expected.entries()) {
      gradients += name.starts_with("grad.") ? 1 : 0;
      balance = balance || name.starts_with("aux_loss");
    }
  }
  for (const auto& folder : std::filesystem::directory_iterator(golden / "adapter"))
    adapters += checkpoints.contains(Json::parse(std::ifstream(folder.path() / "adapter_config.json"))
                                         .at("base_model_name_or_path")
                                         .get<std::string>())
                    ? 1
                    : 0;
  const auto count = [](std::size_t n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return count(checkpoints.size(), "checkpoint") + ", " + count(gradients, "gradient") +
         (balance ? ", balance of experts" : "") + ", " + count(adapters, "adapter");
}

}  // namespace

TEST_CASE("the table of the README is what the loader reads, with what was compared") {
  std::ifstream file(std::filesystem::path(support::test_dir).parent_path() / "README.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  std::string table = "| `model_type` | models | compared |\n|---|---|---|\n";
  for (const model::detail::Family& family : model::detail::families)
    table += "| `" + std::string(family.model_type) + "` | " + std::string(family.who) + " | " +
             compared(family.model_type) + " |\n";
  INFO(table);
  CHECK(page.find(table + "\n") != std::string::npos);
}

TEST_CASE("every family has its row in docs/models.md, and a small model of it scores") {
  std::ifstream file(std::filesystem::path(support::test_dir).parent_path() / "docs/models.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  REQUIRE_FALSE(page.empty());
  for (const model::detail::Family& family : model::detail::families) {
    const std::string row =
        "| `" + std::string(family.model_type) + "` | `" + std::string(family.architecture) + "` | ";
    INFO(row);
    CHECK(page.find(row) != std::string::npos);
    const auto decoder =
        model::random_decoder(model::parse_hf_config(support::small_config(std::string(family.model_type)), "test"), 1);
    model::TokenTree tree;
    tree.segments = {{0, 3, -1, 0}};
    tree.positions = {0, 1, 2};
    tree.ids = {1, 2, 3};
    CHECK(decoder->logits(tree).isfinite().all().item<bool>());
  }
}

TEST_CASE("Gemma 3: windows and rotations by kind of layer, in the spellings of transformers 4 and 5") {
  Json json = support::small_config("gemma3_text");
  json["num_hidden_layers"] = 4;
  json["sliding_window_pattern"] = 2;
  json["rope_theta"] = 700.0;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const auto old = parse(json);
  CHECK(old.norm.unit_offset);
  CHECK(old.embedding_scale == Approx(std::sqrt(12.0)));
  REQUIRE(old.ropes.size() == 2);
  CHECK(old.ropes[0].kind == model::RopeConfig::Kind::linear);
  CHECK(old.ropes[0].theta == 700.0);
  CHECK(old.ropes[1].kind == model::RopeConfig::Kind::standard);
  CHECK(old.ropes[1].theta == 30.0);
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(old.spec(i).window == (i % 2 == 0 ? 5 : 0));
    CHECK(old.spec(i).rope == (i % 2 == 0 ? 1 : 0));
    CHECK(old.spec(i).score_scale == Approx(1.0 / 3));
  }
  Json current = json;
  for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern"})
    current.erase(key);
  current["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  current["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 700.0}}},
                                {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 30.0}}}};
  const auto fresh = parse(current);
  CHECK((fresh.ropes == old.ropes));
  CHECK((fresh.specs == old.specs));
  // What config.json leaves out.
  Json bare = {{"model_type", "gemma3_text"}, {"vocab_size", 9},        {"hidden_size", 8},
               {"intermediate_size", 4},      {"num_hidden_layers", 7}, {"num_attention_heads", 4}};
  const auto defaults = parse(bare);
  CHECK(defaults.head_dim == 256);
  CHECK(defaults.kv_heads == 4);
  CHECK(defaults.tied_embeddings);
  CHECK(defaults.padding_id == 0);
  CHECK(defaults.ropes[0].theta == 1e6);
  CHECK(defaults.ropes[1].theta == 1e4);
  CHECK(defaults.spec(5).window == 0);
  CHECK(defaults.spec(6).window == 4096);
  CHECK(defaults.spec(0).score_scale == 0.0);
  CHECK(defaults.spec(0).activation == model::Activation::gelu_tanh);
}

TEST_CASE("Gemma 3: what would be computed otherwise is refused") {
  const auto with = [](const std::string& key, const Json& value) {
    Json json = support::small_config("gemma3_text");
    json[key] = value;
    return error(json);
  };
  using support::lacks;
  CHECK(lacks(with("final_logit_softcapping", 0.0), {"model.9", "final_logit_softcapping"}) == "");
  CHECK(with("final_logit_softcapping", nullptr) == "nothing");
  CHECK(lacks(with("use_bidirectional_attention", true), {"model.11", "use_bidirectional_attention"}) == "");
  CHECK(lacks(with("hidden_activation", "gelu"), {"model.11", "hidden_activation"}) == "");
  CHECK(lacks(with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}), {"model.11", "rope_type"}) == "");
  CHECK(lacks(with("rope_parameters", {{"rope_theta", 5.0}}), {"model.11", "each kind"}) == "");
  CHECK(lacks(with("rope_parameters", {{"full_attention", 5.0}}), {"model.9", "full_attention"}) == "");
  CHECK(lacks(with("rope_parameters", {{"full_attention", {{"rope_type", "longrope"}}}}), {"model.12"}) == "");
  CHECK(lacks(with("layer_types", {"sliding_attention", "chunked_attention"}), {"model.11", "chunked"}) == "");
  CHECK(lacks(with("sliding_window", 0), {"model.9", "sliding_window"}) == "");
  CHECK(lacks(with("query_pre_attn_scalar", 0), {"model.9", "query_pre_attn_scalar"}) == "");
  Json images = support::small_config("gemma3_text");
  images["model_type"] = "gemma3";
  images["architectures"] = {"Gemma3ForConditionalGeneration"};
  CHECK(lacks(error(images), {"model.10", "gemma3_text"}) == "");
}

TEST_CASE("Qwen3.5 and Qwen3-Next: linear attention but in every fourth layer, or as layer_types says") {
  Json bare = {{"model_type", "qwen3_5_text"}, {"vocab_size", 9},        {"hidden_size", 8},
               {"intermediate_size", 4},       {"num_hidden_layers", 9}, {"num_attention_heads", 4}};
  const auto c = parse(bare);
  CHECK((c.kv_heads == 4 && c.head_dim == 256 && c.norm.unit_offset && !c.tied_embeddings && c.padding_id == -1));
  CHECK(c.ropes[0].width == 64);
  CHECK(c.spec(0).delta == model::DeltaSpec{16, 32, 128, 128, 4, false});
  CHECK_FALSE(c.spec(0).rotary());
  CHECK((c.spec(3).output_gate && !c.spec(3).delta.present() && c.spec(3).head_norm == model::HeadNorm::each));
  CHECK(c.attention_layers() == 2);
  CHECK(c.attention_layers(4) == 1);
  CHECK(c.carried() == 7 * (3 * 8192 + 32 * 128 * 128));
  CHECK(c.carried(3) == 3 * (3 * 8192 + 32 * 128 * 128));
  bare["full_attention_interval"] = 3;
  CHECK(parse(bare).attention_layers() == 3);
  bare["layer_types"] = Json::array({"full_attention"});
  CHECK(support::lacks(error(bare), {"model.9", "layer_types"}) == "");
  bare["layer_types"] = Json::array();
  for (int i = 0; i < 9; ++i) bare["layer_types"].push_back(i == 8 ? "linear_attention" : "full_attention");
  CHECK(parse(bare).attention_layers() == 8);
  bare["layer_types"][1] = "sliding_attention";
  CHECK(support::lacks(error(bare), {"model.11", "linear_attention"}) == "");
  bare.erase("layer_types");
  bare["rope_parameters"] = {{"rope_type", "default"},
                             {"rope_theta", 7.0},
                             {"partial_rotary_factor", 0.5},
                             {"mrope_section", {11, 11, 10}},
                             {"mrope_interleaved", true}};
  CHECK((parse(bare).ropes[0].width == 128 && parse(bare).ropes[0].theta == 7.0));
  bare["linear_num_key_heads"] = 5;
  CHECK(support::lacks(error(bare), {"model.9", "linear_num_key_heads"}) == "");
  bare["linear_num_key_heads"] = 4;
  bare["hidden_act"] = "gelu_pytorch_tanh";
  CHECK(support::lacks(error(bare), {"model.11", "hidden_act"}) == "");
  const auto next = parse(support::small_config("qwen3_next"));
  CHECK((next.spec(0).delta.grouped && next.spec(1).experts.count == 5 && next.spec(0).experts.normalised));
  Json experts = bare;
  experts["hidden_act"] = "silu";
  experts["model_type"] = "qwen3_5_moe_text";
  experts.erase("intermediate_size");
  CHECK((parse(experts).spec(4).experts.count == 256 && parse(experts).spec(4).experts.shared_width == 512));
  experts["num_experts"] = 0;
  CHECK(support::lacks(error(experts), {"model.9", "num_experts"}) == "");
}

TEST_CASE("of a checkpoint that sees images the text model is read, whatever stands beside it") {
  Json text = support::small_config("qwen3_5_text");
  text.erase("model_type");
  text["tie_word_embeddings"] = false;
  const Json json = {{"model_type", "qwen3_5"},
                     {"architectures", {"Qwen3_5ForConditionalGeneration"}},
                     {"dtype", "bfloat16"},
                     {"tie_word_embeddings", true},
                     {"vision_config", {{"depth", 2}}},
                     {"text_config", text}};
  const auto hf = model::parse_hf_config(json, "config.json");
  CHECK(hf.decoder.model_type == "qwen3_5_text");
  CHECK(hf.decoder.tied_embeddings);
  CHECK(hf.json.at("architectures") == Json::array({"Qwen3_5ForCausalLM"}));
  CHECK(hf.json.at("dtype") == "bfloat16");
  CHECK_FALSE(hf.json.contains("vision_config"));
  Json quantized = json;
  quantized["quantization_config"] = {{"quant_method", "fp8"}};
  CHECK(support::lacks(error(quantized), {"model.11", "quantization_config", "fp8"}) == "");

  // The same weights in the files of both; names of the one that sees images begin otherwise.
  const auto plain = model::random_decoder(model::parse_hf_config(hf.json, "test"), 3);
  const support::ScratchDirectory scratch;
  model::save_decoder(*plain, scratch.path() / "text");
  auto tensors = model::read_safetensors(scratch.path() / "text/model.safetensors");
  std::map<std::string, at::Tensor> renamed;
  for (const auto& [name, value] : tensors) renamed["model.language_model." + name.substr(6)] = value;
  renamed["model.visual.blocks.0.norm1.weight"] = at::ones({3});
  renamed["model.visual.blocks.0.norm2.weight"] = at::ones({3});
  renamed["mtp.layers.0.input_layernorm.weight"] = at::ones({12});
  std::filesystem::create_directories(scratch.path() / "images");
  const auto write = [&](const std::map<std::string, at::Tensor>& all) {
    std::vector<model::NamedTensor> list;
    for (const auto& [name, value] : all) list.push_back({name, value});
    model::write_safetensors(scratch.path() / "images/model.safetensors", list);
  };
  write(renamed);
  std::ofstream(scratch.path() / "images/config.json") << json.dump();
  const auto read = model::load_decoder(scratch.path() / "images");
  for (const auto& [name, value] : read->named_tensors()) CHECK(value.equal(tensors.at(name)));
  const auto unread = model::unread_tensors(scratch.path() / "images", read->config());
  CHECK(unread == std::map<std::string, std::int64_t>{{"model.visual.", 2}, {"mtp.", 1}});
  CHECK(model::unread_tensors(scratch.path() / "text", read->config()).empty());
  // Nobody else's tensors are passed over.
  renamed["model.audio.weight"] = at::ones({3});
  write(renamed);
  CHECK(support::lacks(support::raised_by([&] { static_cast<void>(model::load_decoder(scratch.path() / "images")); }),
                       {"model.20", "model.audio.weight"}) == "");
}

TEST_CASE("Gemma 2: every other layer slides, scores and logits have caps unless they are null") {
  Json json = support::small_config("gemma2");
  const auto c = parse(json);
  CHECK(c.spec(0).window == 5);
  CHECK(c.spec(1).window == 0);
  CHECK(c.spec(1).score_cap == 2.0);
  CHECK(c.logit_cap == 3.0);
  CHECK(c.spec(0).head_norm == model::HeadNorm::none);
  json.erase("attn_logit_softcapping");
  json["final_logit_softcapping"] = nullptr;
  CHECK(parse(json).spec(0).score_cap == 50.0);
  CHECK(parse(json).logit_cap == 0.0);
  json["attn_logit_softcapping"] = -1.0;
  CHECK(support::lacks(error(json), {"model.9", "attn_logit_softcapping"}) == "");
}

TEST_CASE("Phi-3: fused maps, part of a head rotated, longrope in its older spellings") {
  Json json = support::small_config("phi3");
  const auto plain = parse(json);
  CHECK(plain.spec(0).fused_qkv);
  CHECK(plain.spec(0).fused_gate_up);
  CHECK(plain.ropes[0].width == 4);
  CHECK(plain.spec(0).window == 0);
  CHECK(plain.context_length() == 512);
  json["original_max_position_embeddings"] = 64;
  json["sliding_window"] = 9;
  json["rope_scaling"] = {{"type", "su"}, {"short_factor", {1.0, 2.0}}, {"long_factor", {3.0, 4.5}}};
  const auto longrope = parse(json);
  CHECK(longrope.spec(1).window == 9);
  CHECK(longrope.ropes[0].kind == model::RopeConfig::Kind::longrope);
  CHECK(longrope.ropes[0].long_factor == std::vector<double>{3.0, 4.5});
  CHECK(longrope.ropes[0].attention_factor == Approx(std::sqrt(1 + std::log(8.0) / std::log(64.0))));
  CHECK(longrope.context_length() == 64);
  const auto near = model::rope_frequencies(longrope.ropes[0], 6, 64),
             far = model::rope_frequencies(longrope.ropes[0], 6, 65);
  CHECK(near[1].item<float>() == Approx(0.1 / 2.0));
  CHECK(far[1].item<float>() == Approx(0.1 / 4.5));
  using support::lacks;
  json["rope_scaling"]["long_factor"] = {3.0};
  CHECK(lacks(error(json), {"model.9", "long_factor", "2 positive numbers"}) == "");
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  CHECK(lacks(error(json), {"model.12", "linear"}) == "");
  json.erase("rope_scaling");
  json["resid_pdrop"] = 0.1;
  CHECK(lacks(error(json), {"model.11", "resid_pdrop"}) == "");
  json["resid_pdrop"] = 0.0;
  json["partial_rotary_factor"] = 0.5;  // 3 of 6 elements
  CHECK(lacks(error(json), {"model.9", "partial_rotary_factor"}) == "");
}

TEST_CASE("OLMo 2, GLM-4 and Granite: what their layers are") {
  const auto olmo = parse(support::small_config("olmo2"));
  CHECK(olmo.spec(0).norms.attention.empty());
  CHECK(olmo.spec(0).norms.attention_output == "post_attention_layernorm");
  CHECK(olmo.spec(0).head_norm == model::HeadNorm::all);
  CHECK(olmo.norm.rounded_once);
  const auto glm = parse(support::small_config("glm4"));
  CHECK(glm.ropes[0].interleaved);
  CHECK(glm.ropes[0].width == 4);
  CHECK((glm.spec(0).qkv_bias && !glm.spec(0).output_bias && glm.spec(0).fused_gate_up && !glm.spec(0).fused_qkv));
  CHECK(glm.spec(0).norms.mlp_output == "post_mlp_layernorm");
  const auto granite = parse(support::small_config("granite"));
  CHECK(granite.embedding_scale == 3.0);
  CHECK(granite.logit_scale == Approx(1 / 1.7));
  CHECK(granite.spec(1).residual_scale == 0.6);
  CHECK(granite.spec(1).score_scale == 0.3);
  Json json = support::small_config("granite");
  json["logits_scaling"] = 0;
  CHECK(support::lacks(error(json), {"model.9", "logits_scaling"}) == "");
}

TEST_CASE("Cohere 2: one centred norm for both branches; layers that slide rotate, in interleaved pairs") {
  Json json = support::small_config("cohere2");
  json["num_hidden_layers"] = 4;
  json["sliding_window"] = 5;
  const auto c = parse(json);
  CHECK((c.norm.centred && c.norm.rounded_once));
  CHECK(c.norm.epsilon == 1e-5);
  CHECK(c.logit_scale == 0.7);
  CHECK(c.ropes[0].interleaved);
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(c.spec(i).parallel);
    CHECK(c.spec(i).norms.mlp.empty());
    CHECK(c.spec(i).window == (i == 3 ? 0 : 5));
    CHECK(c.spec(i).rotary() == (i != 3));
  }
  using support::lacks;
  json["sliding_window"] = nullptr;
  CHECK(lacks(error(json), {"model.9", "sliding_window"}) == "");
  json.erase("sliding_window");
  json["head_dim"] = 8;
  CHECK(lacks(error(json), {"model.9", "head_dim"}) == "");
  json["head_dim"] = 6;
  json["logit_scale"] = -1;
  CHECK(lacks(error(json), {"model.9", "logit_scale"}) == "");
}

TEST_CASE("gpt-oss: sinks, biases, clamped gates, a rotation by YaRN where nothing is said") {
  Json json = support::small_config("gpt_oss");
  const auto c = parse(json);
  CHECK((c.spec(0).sinks && c.spec(0).qkv_bias && c.spec(0).output_bias));
  CHECK(c.spec(0).window == 128);
  CHECK(c.spec(1).window == 0);
  CHECK((c.spec(0).experts.bias && c.spec(0).experts.normalised && c.spec(0).experts.joined_files));
  CHECK(c.spec(0).experts.gate_limit == 0.4);
  CHECK(c.spec(0).experts.gate_slope == 1.702);
  CHECK(c.spec(0).experts.width == 10);
  CHECK(c.ropes[0].kind == model::RopeConfig::Kind::yarn);
  CHECK(c.ropes[0].theta == 100.0);
  CHECK(c.ropes[0].factor == 32.0);
  CHECK(c.ropes[0].attention_factor == Approx(0.1 * std::log(32.0) + 1.0));
  using support::lacks;
  json["quantization_config"] = {{"quant_method", "mxfp4"}};
  CHECK(error(json) == "nothing");
  json["quantization_config"] = {{"quant_method", "fp8"}};
  CHECK(lacks(error(json), {"model.11", "quantization_config"}) == "");
  json.erase("quantization_config");
  json["swiglu_limit"] = 0.0;
  CHECK(lacks(error(json), {"model.9", "swiglu_limit"}) == "");
  Json llama = support::small_config("llama");
  llama["quantization_config"] = {{"quant_method", "mxfp4"}};
  CHECK(lacks(error(llama), {"model.11", "quantization_config"}) == "");
}

TEST_CASE("Qwen's experts: which layers have them, how many, and both spellings of their number") {
  Json json = support::small_config("qwen3_moe");
  json["num_hidden_layers"] = 5;
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {3};
  const auto c = parse(json);
  for (std::int64_t i = 0; i < 5; ++i) CHECK(c.spec(i).experts.count == (i == 1 ? 5 : 0));
  CHECK(c.spec(1).experts.chosen == 2);
  CHECK(c.spec(1).experts.width == 6);
  CHECK(c.spec(1).experts.normalised);
  CHECK(c.spec(1).experts.shared_width == 0);
  CHECK(c.router_aux_loss_coef == 0.001);
  Json local = json;
  local.erase("num_experts");
  local["num_local_experts"] = 5;
  CHECK((parse(local).specs == c.specs));
  local["num_experts"] = 6;
  CHECK(support::lacks(error(local), {"model.9", "num_local_experts", "6"}) == "");
  json["num_experts_per_tok"] = 6;
  CHECK(support::lacks(error(json), {"model.9", "num_experts_per_tok", "5"}) == "");
  json["num_experts"] = 0;
  for (std::int64_t i = 0; i < 5; ++i) CHECK(parse(json).spec(i).experts.count == 0);
  // What config.json leaves out.
  const Json bare = {{"model_type", "qwen3_moe"}, {"vocab_size", 9},        {"hidden_size", 8},
                     {"intermediate_size", 4},    {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
  const auto defaults = parse(bare);
  CHECK(defaults.spec(0).experts.count == 128);
  CHECK(defaults.spec(0).experts.chosen == 8);
  CHECK(defaults.spec(0).experts.width == 768);
  CHECK_FALSE(defaults.spec(0).experts.normalised);
  CHECK(defaults.head_dim == 2);
  Json windowed = bare;
  windowed["use_sliding_window"] = true;
  for (std::int64_t i = 0; i < 2; ++i) CHECK(parse(windowed).spec(i).window == 4096);
}

TEST_CASE("Qwen2 with experts has one that all tokens pass, and windows in every second of the first layers") {
  Json json = support::small_config("qwen2_moe");
  json["num_hidden_layers"] = 6;
  json["use_sliding_window"] = true;
  json["sliding_window"] = 7;
  json["max_window_layers"] = 4;
  const auto c = parse(json);
  CHECK(c.spec(0).experts.shared_width == 7);
  CHECK(c.spec(1).experts.count == 0);
  CHECK(c.spec(0).qkv_bias);
  for (std::int64_t i = 0; i < 6; ++i) CHECK(c.spec(i).window == (i == 0 || i == 2 ? 7 : 0));
  json["qkv_bias"] = false;
  CHECK_FALSE(parse(json).spec(0).qkv_bias);
}

TEST_CASE("Mixtral's experts have names of their own, and a router that sees what they see") {
  Json json = support::small_config("mixtral");
  json["sliding_window"] = 6;
  const auto c = parse(json);
  CHECK(c.spec(1).experts.count == 4);
  CHECK(c.spec(1).experts.width == 10);
  CHECK(c.spec(1).experts.normalised);
  CHECK(c.spec(1).window == 6);
  json["router_jitter_noise"] = 0.1;
  CHECK(support::lacks(error(json), {"model.11", "router_jitter_noise"}) == "");
  json["router_jitter_noise"] = 0.0;
  json["sliding_window"] = nullptr;
  json["rms_norm_eps"] = nullptr;
  CHECK(parse(json).spec(0).window == 0);
  CHECK(parse(json).norm.epsilon == 1e-5);
  const auto decoder = model::random_decoder(model::parse_hf_config(json, "test"), 1);
  bool found = false;
  for (const auto& [name, value] : decoder->named_tensors())
    found = found || (name == "model.layers.1.block_sparse_moe.experts.3.w2.weight" && value.size(0) == 12);
  CHECK(found);
}
