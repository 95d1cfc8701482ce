#include <rlalgo/model/adapter_files.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
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
const std::vector<Case> cases = {{"plain", "llama3_rope"}, {"patterns", "qwen2"}, {"dora", "qwen3"}, {"pissa", "llama"},
                                 {"head", "llama"},        {"norms", "qwen3"},    {"parts", "qwen2"}};

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
    for (const char* list : {"target_modules", "modules_to_save"})  // a Python set: in any order
      if (theirs[list].is_array()) {
        auto names = theirs[list].get<std::vector<std::string>>();
        std::sort(names.begin(), names.end());
        theirs[list] = names;
      }
    CHECK(ours.dump(2) == theirs.dump(2));
  }
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
