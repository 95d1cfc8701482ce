#include <sys/stat.h>

#include <rlalgo/model/hf_config.hpp>

#include <cmath>

#include <string>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using model::Json;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

model::DecoderConfig parse(const Json& json) { return model::parse_hf_config(json, "config.json").decoder; }

Json with(Json json, const std::string& key, Json value) {
  json[key] = std::move(value);
  return json;
}

std::string error(const Json& json) {
  return raised_by([&] { (void)parse(json); });
}

const Json llama = rlalgo::support::small_config("llama"), qwen2 = rlalgo::support::small_config("qwen2"),
           qwen3 = rlalgo::support::small_config("qwen3");

}  // namespace

TEST_CASE("architectures differ in biases, head norms and ties") {
  const auto l = parse(llama), q2 = parse(qwen2), q3 = parse(qwen3);
  const auto &ls = l.spec(0), &q2s = q2.spec(0), &q3s = q3.spec(0);
  CHECK((ls.qkv_bias && ls.output_bias && ls.mlp_bias && ls.head_norm == model::HeadNorm::none && l.tied_embeddings));
  CHECK((q2s.qkv_bias && !q2s.output_bias && !q2s.mlp_bias && q2s.head_norm == model::HeadNorm::none &&
         q2.tied_embeddings));
  CHECK((!q3s.qkv_bias && !q3s.output_bias && !q3s.mlp_bias && q3s.head_norm == model::HeadNorm::each &&
         !q3.tied_embeddings));
  CHECK(l.head_dim == 6);
  CHECK(l.kv_heads == 2);
}

TEST_CASE("missing fields take the defaults of transformers; null counts as missing") {
  Json json = {{"architectures", {"LlamaForCausalLM"}},
               {"vocab_size", 10},
               {"hidden_size", 12},
               {"intermediate_size", 8},
               {"num_hidden_layers", 1},
               {"num_attention_heads", 3},
               {"head_dim", nullptr}};
  const auto c = parse(json);
  CHECK(c.model_type == "llama");
  CHECK(c.kv_heads == 3);
  CHECK(c.head_dim == 4);
  CHECK(c.norm.epsilon == 1e-6);
  CHECK(c.ropes[0].theta == 10000.0);
  CHECK_FALSE(c.tied_embeddings);
  json["architectures"] = {"Qwen3ForCausalLM"};
  CHECK(parse(json).head_dim == 128);
}

TEST_CASE("the padding token's row of the embedding, as transformers makes it") {
  const auto padding = [](const Json& base, const Json& value) {
    Json json = base;
    json["pad_token_id"] = value;
    return parse(json).padding_id;
  };
  CHECK(parse(llama).padding_id == -1);
  CHECK(padding(llama, nullptr) == -1);
  CHECK(padding(llama, 3) == 3);
  CHECK(padding(qwen2, -1) == 22);
  CHECK(parse(rlalgo::support::small_config("smollm3")).padding_id == 128004);
  CHECK(padding(rlalgo::support::small_config("smollm3"), nullptr) == -1);
}

TEST_CASE("RoPE is read in the old and the new spelling") {
  const Json scaling = {
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  Json old = with(with(llama, "rope_theta", 500000.0), "rope_scaling", with(scaling, "type", "llama3"));
  Json current = llama;
  current.erase("rope_theta");
  current["rope_parameters"] = with(with(scaling, "rope_type", "llama3"), "rope_theta", 500000.0);
  for (const auto& json :
       {old, with(with(llama, "rope_theta", 500000.0), "rope_scaling", with(scaling, "rope_type", "llama3")),
        current}) {
    const auto rope = parse(json).ropes[0];
    CHECK(rope.kind == model::RopeConfig::Kind::llama3);
    CHECK(rope.theta == 500000.0);
    CHECK(rope.factor == 8.0);
    CHECK(rope.high_freq_factor == 4.0);
    CHECK(rope.original_max_position_embeddings == 64.0);
  }
  old["rope_scaling"].erase("original_max_position_embeddings");
  CHECK(parse(old).ropes[0].original_max_position_embeddings == 512.0);
  CHECK(parse(with(llama, "rope_scaling", nullptr)).ropes[0].kind == model::RopeConfig::Kind::standard);
  CHECK(parse(with(llama, "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}})).ropes[0].theta == 7.0);

  CHECK(lacks(error(with(llama, "rope_scaling", {{"type", "longrope"}, {"factor", 2.0}})),
              {"model.12", "longrope", "rope_scaling"}) == "");
  const auto linear = parse(with(llama, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})).ropes[0];
  CHECK(linear.kind == model::RopeConfig::Kind::linear);
  CHECK(linear.factor == 2.0);
  // Dynamic scaling counts from max_position_embeddings whatever else is written.
  const auto dynamic = parse(with(llama, "rope_scaling",
                                  {{"type", "dynamic"}, {"factor", 2.0}, {"original_max_position_embeddings", 8}}))
                           .ropes[0];
  CHECK(dynamic.original_max_position_embeddings == 512.0);
  const auto yarn =
      parse(with(llama, "rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}}))
          .ropes[0];
  CHECK(yarn.attention_factor == Approx(0.1 * std::log(4.0) + 1));
  CHECK(lacks(error(with(llama, "rope_scaling", {{"rope_type", "llama3"}})), {"model.9", "factor", "rope_scaling"}) ==
        "");
  CHECK(lacks(error(with(llama, "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}})),
              {"model.11", "partial"}) == "");
}

TEST_CASE("what transformers reads and this library would compute otherwise is refused where it has an effect") {
  CHECK(lacks(error(with(llama, "attention_dropout", 0.1)), {"model.11", "attention_dropout", "0.1"}) == "");
  CHECK(parse(with(llama, "attention_dropout", 0)).layers == parse(llama).layers);
  CHECK(lacks(error(with(qwen2, "is_causal", false)), {"model.11", "is_causal"}) == "");
  CHECK(parse(with(qwen2, "is_causal", true)).layers == parse(qwen2).layers);
  CHECK(lacks(error(with(llama, "per_layer_config", {{"0", {{"hidden_size", 3}}}})),
              {"model.11", "per_layer_config"}) == "");
  CHECK(parse(with(llama, "per_layer_config", nullptr)).layers == parse(llama).layers);
  const Json kinds = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
  CHECK(lacks(error(with(qwen2, "rope_parameters", kinds)), {"model.11", "full_attention", "rope_parameters"}) == "");
}

TEST_CASE("unknown architectures are refused by name with the list of those that work") {
  CHECK(lacks(error(with(llama, "model_type", "gpt2")), {"model.10", "gpt2", "llama", "qwen2", "qwen3"}) == "");
  CHECK(lacks(error(with(llama, "architectures", {"LlamaForSequenceClassification"})),
              {"model.10", "LlamaForSequenceClassification"}) == "");
  CHECK(lacks(error(with(qwen2, "architectures", {"Qwen3ForCausalLM"})), {"model.10"}) == "");
  Json nothing = llama;
  nothing.erase("model_type");
  CHECK(lacks(error(nothing), {"model.10"}) == "");
}

TEST_CASE("what would be computed wrongly is refused") {
  CHECK(lacks(error(with(llama, "hidden_act", "gelu")), {"model.11", "hidden_act", "gelu"}) == "");
  CHECK(lacks(error(with(llama, "quantization_config", {{"bits", 4}})), {"model.11", "quantization_config"}) == "");
  Json window = with(with(with(qwen2, "use_sliding_window", true), "sliding_window", 64), "max_window_layers", 1);
  const auto windows = [](const Json& json) {
    std::vector<std::int64_t> out;
    const auto config = parse(json);
    for (std::int64_t i = 0; i < 2; ++i) out.push_back(config.spec(i).window);
    return out;
  };
  using Windows = std::vector<std::int64_t>;
  CHECK(windows(window) == Windows{0, 64});
  CHECK(windows(with(window, "use_sliding_window", false)) == Windows{0, 0});
  CHECK(windows(with(window, "max_window_layers", 2)) == Windows{0, 0});
  CHECK(windows(with(window, "layer_types", {"full_attention", "full_attention"})) == Windows{0, 0});
  CHECK(windows(with(window, "layer_types", {"sliding_attention", "full_attention"})) == Windows{64, 0});
  CHECK(lacks(error(with(window, "layer_types", {"full_attention", "chunked_attention"})),
              {"model.11", "chunked_attention"}) == "");
  CHECK(lacks(error(with(llama, "layer_types", {"full_attention", "sliding_attention"})),
              {"model.11", "sliding_attention"}) == "");
  CHECK(lacks(error(with(llama, "num_hidden_layers", 2000000000)), {"model.9", "num_hidden_layers"}) == "");
  const Json mistral = with(llama, "model_type", "mistral");
  CHECK(windows(mistral) == Windows{4096, 4096});
  CHECK(windows(with(mistral, "sliding_window", nullptr)) == Windows{0, 0});
}

TEST_CASE("wrong fields are named") {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    Json json = llama;
    json.erase(key);
    CHECK(lacks(error(json), {"model.9", key, "config.json"}) == "");
    CHECK(lacks(error(with(llama, key, 0)), {"model.9", key}) == "");
    CHECK(lacks(error(with(llama, key, "many")), {"model.9", key, "many"}) == "");
  }
  CHECK(lacks(error(with(llama, "num_key_value_heads", 3)), {"model.9", "num_key_value_heads", "divisor"}) == "");
  CHECK(lacks(error(with(llama, "head_dim", 5)), {"model.9", "head_dim", "even"}) == "");
  CHECK(lacks(error(with(llama, "tie_word_embeddings", 1)), {"model.9", "tie_word_embeddings"}) == "");
  CHECK(lacks(error(with(llama, "eos_token_id", "x")), {"model.9", "eos_token_id"}) == "");
}

TEST_CASE("the original JSON is kept as it was") {
  const Json json = with(llama, "some_future_key", {{"a", 1}});
  CHECK(model::parse_hf_config(json, "x").json.dump() == json.dump());
}

TEST_CASE("files: missing directory, missing and broken config.json, end ids") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto read = [](const std::filesystem::path& path) {
    return raised_by([&] { (void)model::read_hf_config(path); });
  };
  CHECK(lacks(read(scratch.path() / "none"), {"model.7", "none", "base_model"}) == "");
  CHECK(lacks(read(scratch.path()), {"model.8", "config.json"}) == "");
  scratch.write("config.json", "{\"model_type\":");
  CHECK(lacks(read(scratch.path()), {"model.8", "not valid JSON"}) == "");
  scratch.write("config.json", "[]");
  CHECK(lacks(read(scratch.path()), {"model.8", "array"}) == "");
  scratch.write("config.json", "{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}");
  CHECK(lacks(read(scratch.path()), {"model.8", "200 levels"}) == "");
  scratch.write("config.json", "{\"a\": 1e999}");
  CHECK(lacks(read(scratch.path()), {"model.8", "1e999"}) == "");
  scratch.write("config.json", llama.dump());
  CHECK(read(scratch.path()) == "nothing");
  std::filesystem::create_directory(scratch.path() / "pipe");
  REQUIRE(::mkfifo((scratch.path() / "pipe/config.json").c_str(), 0600) == 0);
  CHECK(lacks(read(scratch.path() / "pipe"), {"model.8", "a named pipe", "config.json"}) == "");
  std::filesystem::create_symlink("loop", scratch.path() / "loop");
  CHECK(lacks(read(scratch.path() / "loop"), {"os.7", "symbolic links", "loop"}) == "");
  CHECK(model::eos_token_ids(scratch.path()) == std::vector<std::int64_t>{2});
  CHECK_FALSE(model::read_generation_config(scratch.path()).has_value());
  scratch.write("generation_config.json",
                R"({"eos_token_id":[4,5],"temperature":0.7,"top_k":20,"do_sample":true,"pad_token_id":null})");
  const auto generation = model::read_generation_config(scratch.path());
  REQUIRE(generation.has_value());
  CHECK(generation->eos_token_ids == std::vector<std::int64_t>{4, 5});
  CHECK(generation->temperature == 0.7);
  CHECK(generation->top_k == 20);
  CHECK(generation->do_sample == true);
  CHECK_FALSE(generation->pad_token_id.has_value());
  CHECK_FALSE(generation->top_p.has_value());
  CHECK(model::eos_token_ids(scratch.path()) == std::vector<std::int64_t>{4, 5});
  scratch.write("generation_config.json", R"({"temperature":1.0})");
  CHECK(model::eos_token_ids(scratch.path()) == std::vector<std::int64_t>{2});
  scratch.write("generation_config.json", R"({"top_p":"high"})");
  CHECK(lacks(raised_by([&] { (void)model::read_generation_config(scratch.path()); }),
              {"model.9", "top_p", "generation_config.json"}) == "");
}
