#include <rlalgo/model/adapter_files.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden";

struct Case {
  const char* name;
  const char* base;
};
const std::vector<Case> cases = {{"plain", "llama3_rope"},
                                 {"patterns", "qwen2"},
                                 {"dora", "qwen3"},
                                 {"pissa", "llama"},
                                 {"head", "llama"},
                                 {"norms", "qwen3"},
                                 {"parts", "qwen2"},
                                 {"experts", "qwen3_moe"},
                                 {"experts_down", "mixtral"},
                                 {"experts_joined", "gpt_oss"},
                                 // One of every other family.
                                 {"of_mistral", "mistral"},
                                 {"of_smollm3", "smollm3"},
                                 {"of_gemma2", "gemma2"},
                                 {"of_gemma3", "gemma3"},
                                 {"of_olmo2", "olmo2"},
                                 {"of_granite", "granite"},
                                 {"of_cohere2", "cohere2"},
                                 {"of_phi3", "phi3"},
                                 {"of_glm4", "glm4"},
                                 {"of_qwen2_moe", "qwen2_moe"},
                                 {"of_qwen3_5", "qwen3_5"},
                                 {"of_qwen3_5_moe", "qwen3_5_moe"},
                                 {"of_qwen3_next", "qwen3_next"}};

// Embeddings of a changed base beside the adapter, some with another vocabulary; every norm as a module to save.
const std::vector<Case> beside = {{"stored_tied", "llama3_rope"},   {"stored_untied", "llama"},
                                  {"resized_tied", "llama3_rope"},  {"resized_untied", "llama"},
                                  {"resized_saved", "llama3_rope"}, {"resized_input", "llama"},
                                  {"resized_head", "llama3_rope"},  {"all_norms", "llama3_rope"}};

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

at::Tensor logits(model::Decoder& decoder, const at::Tensor& ids) {
  const std::vector<std::int32_t> tokens(ids.const_data_ptr<std::int64_t>(),
                                         ids.const_data_ptr<std::int64_t>() + ids.numel());
  const std::vector<model::Sequence> rows = {{tokens, {}}};
  return decoder.logits(model::build_tree(rows, {.keep_last = true}));
}

}  // namespace

TEST_CASE("adapters that PEFT saved give PEFT's logits") {
  for (const auto& [name, base] : cases) {
    const auto decoder = model::load_decoder(golden / "model" / base);
    const auto expected = model::read_safetensors(golden / "adapter" / name / "expected.safetensors");
    const auto before = logits(*decoder, expected.at("ids"));
    model::load_adapter(*decoder, golden / "adapter" / name);
    INFO(name);
    CHECK((logits(*decoder, expected.at("ids")) - expected.at("logits")).abs().max().item<double>() < 1e-4);
    CHECK((before - expected.at("logits")).abs().max().item<double>() > 0.01);
    CHECK((logits(*decoder->reference(), expected.at("ids")) - expected.at("logits")).abs().max().item<double>() <
          1e-4);
  }
}

TEST_CASE("what we save of a PEFT adapter is what PEFT saved") {
  for (const auto& [name, base] : cases) {
    const rlalgo::support::ScratchDirectory scratch;
    const auto decoder = model::load_decoder(golden / "model" / base);
    model::load_adapter(*decoder, golden / "adapter" / name);
    model::save_adapter(*decoder, scratch.path(), base);
    INFO(name);
    // PEFT stores the embedding beside an adapter of lm_head; nothing of it was trained, so we do not.
    if (std::string(name) != "head")
      CHECK((bytes_of(scratch.path() / "adapter_model.safetensors") ==
             bytes_of(golden / "adapter" / name / "adapter_model.safetensors")));
    auto ours = model::Json::parse(bytes_of(scratch.path() / "adapter_config.json"));
    auto theirs = model::Json::parse(bytes_of(golden / "adapter" / name / "adapter_config.json"));
    for (const char* list : {"target_modules", "modules_to_save", "target_parameters"})  // a Python set: in any order
      if (theirs[list].is_array()) {
        auto names = theirs[list].get<std::vector<std::string>>();
        std::sort(names.begin(), names.end());
        theirs[list] = names;
      }
    CHECK(ours.dump(2) == theirs.dump(2));
  }
}

TEST_CASE("an adapter by the names of experts' maps is the one that PEFT makes of them") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto decoder = model::load_decoder(golden / "model/qwen3_next");
  model::attach_lora(*decoder,
                     {.r = 2,
                      .alpha = 4.0,
                      .target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                         "in_proj_qkvz", "in_proj_ba", "out_proj"}},
                     1);
  model::save_adapter(*decoder, scratch.path(), "qwen3_next");
  const auto read = [](const std::filesystem::path& directory) {
    auto json = model::Json::parse(bytes_of(directory / "adapter_config.json"));
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const auto& [name, value] : model::read_safetensors(directory / "adapter_model.safetensors"))
      shapes[name] = value.sizes().vec();
    for (const char* list : {"target_modules", "target_parameters"}) {
      auto names = json[list].get<std::vector<std::string>>();
      std::sort(names.begin(), names.end());
      json[list] = names;
    }
    return std::pair(json.dump(2), shapes);
  };
  CHECK(read(scratch.path()) == read(golden / "adapter/of_qwen3_next"));
}

TEST_CASE("embeddings beside an adapter take the place of the base's, and are saved again") {
  for (const auto& [name, base] : beside) {
    const rlalgo::support::ScratchDirectory scratch;
    const auto expected = model::read_safetensors(golden / "adapter" / name / "expected.safetensors");
    const auto check = [&](const std::filesystem::path& adapter) {
      auto decoder = model::load_decoder(golden / "model" / base);
      const std::int64_t before = decoder->config().vocab_size;
      model::load_adapter(*decoder, adapter);
      CHECK((logits(*decoder, expected.at("ids")) - expected.at("logits")).abs().max().item<double>() < 1e-4);
      CHECK((logits(*decoder->reference(), expected.at("ids")) - expected.at("logits")).abs().max().item<double>() <
            1e-4);
      const bool resized = std::string(name).starts_with("resized");
      CHECK(decoder->config().vocab_size == (resized ? 70 : before));
      CHECK(decoder->hf_config().json["vocab_size"] == (resized ? 70 : before));
      CHECK(decoder->without_adapter()->weights().embedding.size(0) == (resized ? 70 : before));
      for (const auto& p : decoder->parameters())
        CHECK((p.name.find(".lora_") != std::string::npos ||
               model::is_saved_module(decoder->adapter()->config, p.name.substr(0, p.name.rfind('.')))));
      return decoder;
    };
    INFO(name);
    model::save_adapter(*check(golden / "adapter" / name), scratch.path(), base);
    check(scratch.path());
  }
}

TEST_CASE("embeddings equal to the base's are the base's, and those that contradict are refused") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto load = [&](const char* base, const std::vector<model::NamedTensor>& more, model::Json change = {}) {
    auto decoder = model::load_decoder(golden / "model" / base);
    model::attach_lora(*decoder, {.r = 2, .target_modules = {"q_proj"}}, 1);
    model::save_adapter(*decoder, scratch.path(), base);
    std::vector<model::NamedTensor> tensors;
    for (const auto& [name, value] : model::read_safetensors(scratch.path() / "adapter_model.safetensors"))
      tensors.emplace_back(name, value);
    tensors.insert(tensors.end(), more.begin(), more.end());
    model::write_safetensors(scratch.path() / "adapter_model.safetensors", tensors);
    auto json = model::Json::parse(bytes_of(scratch.path() / "adapter_config.json"));
    if (change.is_object()) json.update(change);
    scratch.write("adapter_config.json", json.dump());
    decoder = model::load_decoder(golden / "model" / base);
    const void* const before = decoder->weights().embedding.const_data_ptr();
    model::load_adapter(*decoder, scratch.path());
    CHECK((decoder->weights().embedding.const_data_ptr() == before) != decoder->embeddings_replaced());
    return decoder;
  };
  const std::string in = "base_model.model.model.embed_tokens", out = "base_model.model.lm_head";
  const auto own = model::load_decoder(golden / "model/llama");
  const at::Tensor input = own->weights().embedding.detach(), output = own->weights().lm_head.detach();
  CHECK_FALSE(load("llama", {{in + ".weight", input}, {out + ".weight", output}})->embeddings_replaced());
  CHECK(load("llama", {{in + ".weight", input + 1}})->embeddings_replaced());
  const auto error = [&](const char* base, const std::vector<model::NamedTensor>& more, model::Json change = {}) {
    return raised_by([&] { (void)load(base, more, change); });
  };
  CHECK(lacks(error("llama", {{in + ".weight", at::zeros({70, 30})}}), {"model.30", "70 tokens in, 67 out"}) == "");
  CHECK(lacks(error("llama", {{in + ".weight", at::zeros({67, 31})}}), {"model.30", "[67,31]", "embed_tokens"}) == "");
  CHECK(lacks(error("llama3_rope", {{in + ".weight", at::zeros({65, 24})}, {out + ".weight", at::ones({65, 24})}}),
              {"model.30", "differ"}) == "");
  CHECK(lacks(error("llama", {{out + ".weight", output}, {out + ".original_module.weight", output + 1}}),
              {"model.30", "original_module"}) == "");
  CHECK(lacks(error("llama", {{"base_model.model.model.norm.bias", at::zeros({30})}}),
              {"model.30", "model.norm.bias"}) == "");
  CHECK(lacks(error("llama", {{out + ".weight", output}, {out + ".modules_to_save.weight", output + 1}},
                    {{"modules_to_save", {"lm_head"}}}),
              {"model.30", "twice"}) == "");
  CHECK(lacks(error("llama", {{in + ".weight", input + 1}}, {{"modules_to_save", {"lm_head"}}}),
              {"model.30", "lacks", "lm_head.weight"}) == "");
}

TEST_CASE("an adapter's tensors are found under the names of wrappers and with the adapter's own name") {
  const auto base = golden / "model/llama3_rope", adapter = golden / "adapter/plain";
  const auto expected = model::read_safetensors(adapter / "expected.safetensors");
  const auto stored = model::read_safetensors(adapter / "adapter_model.safetensors");
  const auto change = [](std::string name, const std::string& from, const std::string& to) {
    const std::size_t at = name.find(from);
    return at == std::string::npos ? name : name.replace(at, from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> changes = {{"base_model", "module.base_model"},
                                                                    {"base_model", "_orig_mod.base_model"},
                                                                    {".self_attn", "._fsdp_wrapped_module.self_attn"},
                                                                    {"base_model.model.", ""},
                                                                    {"base_model.model.model.", "base_model.model."},
                                                                    {".weight", ".default.weight"}};
  for (const auto& [from, to] : changes) {
    const rlalgo::support::ScratchDirectory scratch;
    std::filesystem::copy_file(adapter / "adapter_config.json", scratch.path() / "adapter_config.json");
    std::vector<model::NamedTensor> tensors;
    for (const auto& [name, value] : stored) tensors.emplace_back(change(name, from, to), value);
    REQUIRE(std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return !stored.contains(t.first); }));
    model::write_safetensors(scratch.path() / "adapter_model.safetensors", tensors);
    const auto decoder = model::load_decoder(base);
    INFO(to);
    model::load_adapter(*decoder, scratch.path());
    CHECK((logits(*decoder, expected.at("ids")) - expected.at("logits")).abs().max().item<double>() < 1e-4);
  }
  const rlalgo::support::ScratchDirectory scratch;
  std::filesystem::copy_file(adapter / "adapter_config.json", scratch.path() / "adapter_config.json");
  scratch.write("adapter_model.bin", "");
  CHECK(lacks(raised_by([&] { model::load_adapter(*model::load_decoder(base), scratch.path()); }),
              {"model.28", "adapter_model.bin", "save_pretrained"}) == "");
}

TEST_CASE("a fresh adapter survives saving and loading to the bit") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto fresh = [] {
    return model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("llama"), "test"), 3);
  };
  const auto first = fresh(), second = fresh();
  model::attach_lora(*first,
                     {.r = 2,
                      .alpha = 3.5,
                      .target_modules = {"q_proj", "mlp.up_proj"},
                      .modules_to_save = {"norm"},
                      .init = model::LoraInit::random},
                     7);
  model::save_adapter(*first, scratch.path(), "base");
  CHECK(model::adapter_base_model(scratch.path()) == "base");
  model::load_adapter(*second, scratch.path());
  const auto a = first->parameters(), b = second->parameters();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].name == b[i].name);
    CHECK(a[i].value.equal(b[i].value));
  }
}

TEST_CASE("an adapter with fewer modules to save than its entries name is what its file has") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto attach = [](std::vector<std::string> saved) {
    auto out = model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("qwen3"), "test"), 3);
    model::attach_lora(*out, {.r = 2, .target_modules = {"q_proj"}, .modules_to_save = std::move(saved)}, 7);
    return out;
  };
  const auto rename = [&](const std::string& entry) {
    auto json = model::Json::parse(bytes_of(scratch.path() / "adapter_config.json"));
    json["modules_to_save"] = {entry};
    std::ofstream(scratch.path() / "adapter_config.json") << json.dump(2);
  };
  const auto load = [&] {
    const auto out = model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("qwen3"), "test"), 3);
    model::load_adapter(*out, scratch.path());
    return out->adapter()->config.modules_to_save;
  };
  using Names = std::vector<std::string>;
  model::save_adapter(*attach({"norm"}), scratch.path(), "base");
  CHECK(load() == Names{"norm"});
  model::save_adapter(*attach({"model.norm"}), scratch.path(), "base");
  rename("norm");  // what an earlier build wrote
  CHECK(load() == Names{"model.norm"});
  model::save_adapter(*attach({"model.norm", "0.input_layernorm"}), scratch.path(), "base");
  rename("norm");  // neither the one nor the other
  CHECK(lacks(raised_by([&] { (void)load(); }), {"model.30", "lacks"}) == "");
  model::save_adapter(*attach({"lm_head"}), scratch.path(), "base");
  rename("norm");
  CHECK(lacks(raised_by([&] { (void)load(); }), {"model.30", "lacks"}) == "");
}

TEST_CASE("adapters that do not fit are refused by number, with tensor and shapes") {
  const auto decoder = [](const char* base) { return model::load_decoder(golden / "model" / base); };
  CHECK(lacks(raised_by([&] { model::load_adapter(*decoder("llama"), golden / "adapter/plain"); }),
              {"model.30", "lora_A.weight", "[3,24]", "[3,30]"}) == "");
  CHECK(lacks(raised_by([&] { model::load_adapter(*decoder("llama"), golden / "model/llama"); }), {"model.28"}) == "");
  const auto parse = [](model::Json change) {
    auto json = model::adapter_config_json({.target_modules = {"q_proj"}}, "base");
    json.update(change);
    return raised_by([&] { (void)model::parse_adapter_config(json, "adapter_config.json"); });
  };
  CHECK(parse(model::Json::object()) == "nothing");
  CHECK(lacks(parse({{"peft_type", "IA3"}}), {"model.29", "IA3"}) == "");
  CHECK(lacks(parse({{"bias", "all"}}), {"model.29", "bias"}) == "");
  CHECK(lacks(parse({{"init_lora_weights", "olora"}}), {"model.29", "olora", "merge"}) == "");
  CHECK(lacks(parse({{"trainable_token_indices", {1, 2}}}), {"model.29", "trainable_token_indices"}) == "");
  CHECK(lacks(parse({{"target_modules", 3}}), {"model.28", "target_modules"}) == "");
  CHECK(lacks(parse({{"r", 0}}), {"model.24"}) == "");
}

TEST_CASE("every key of an adapter's configuration is used, harmless, or refused by its name") {
  const auto parse = [](model::Json change) {
    auto json = model::adapter_config_json({.target_modules = {"q_proj"}}, "base");
    json.update(change);
    return raised_by([&] { (void)model::parse_adapter_config(json, "adapter_config.json"); });
  };
  const model::Json refused = {{"alora_invocation_tokens", {1}},
                               {"arrow_config", {{"top_k", 3}}},
                               {"kasa_config", {{"beta", 1}}},
                               {"layer_replication", {{0, 1}}},
                               {"lora_bias", true},
                               {"megatron_config", {{"tensor_model_parallel_size", 2}}},
                               {"monteclora_config", {{"num_samples", 2}}},
                               {"trainable_token_indices", {{"embed_tokens", {1}}}},
                               {"use_bdlora", {{"nblocks", 2}}},
                               {"use_qalora", true},
                               {"a_key_of_tomorrow", 1}};
  for (const auto& [key, value] : refused.items()) {
    INFO(key);
    CHECK(lacks(parse({{key, value}}), {"model.29", key, "adapter_config.json"}) == "");
    CHECK(parse({{key, nullptr}}) == "nothing");
    CHECK(parse({{key, false}}) == "nothing");
  }
  auto json = model::adapter_config_json({.target_modules = {"q_proj"}}, "base");
  json["target_parameters"] = {"mlp.experts.down_proj"};
  CHECK(model::parse_adapter_config(json, "test").target_parameters ==
        std::vector<std::string>{"mlp.experts.down_proj"});
  const model::Json harmless = {{"corda_config", {{"corda_method", "ipm"}}},
                                {"eva_config", {{"rho", 2.0}}},
                                {"fan_in_fan_out", true},
                                {"loftq_config", {{"loftq_bits", 4}}},
                                {"megatron_core", "megatron.core"},
                                {"peft_version", "0.30"},
                                {"qalora_group_size", 8},
                                {"revision", "main"},
                                {"task_type", "SEQ_CLS"},
                                {"auto_mapping", {{"x", 1}}}};
  for (const auto& [key, value] : harmless.items()) CHECK(parse({{key, value}}) == "nothing");
  CHECK(parse({{"ensure_weight_tying", true}}) == "nothing");
  CHECK(lacks(parse({{"ensure_weight_tying", true}, {"modules_to_save", {"embed_tokens"}}}),
              {"model.29", "ensure_weight_tying"}) == "");
  CHECK(lacks(parse({{"target_modules", ".*q_proj"}, {"layers_to_transform", {0}}}),
              {"model.24", "layers_to_transform"}) == "");
  CHECK(lacks(parse({{"layers_pattern", "layers"}}), {"model.24", "layers_pattern"}) == "");
}
