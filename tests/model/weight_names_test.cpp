#include <rlalgo/model/weight_names.hpp>

#include <map>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/decoders.hpp>

using namespace rlalgo;

namespace {

std::map<std::string, std::vector<std::int64_t>> names(const std::string& type) {
  const auto config = model::parse_hf_config(rlalgo::support::small_config(type), "test").decoder;
  model::DecoderWeights weights;
  weights.layers.resize(static_cast<std::size_t>(config.layers));
  std::map<std::string, std::vector<std::int64_t>> out;
  model::visit_weights(config, weights,
                       [&](const std::string& name, at::Tensor&, const auto& shape, model::WeightRole role) {
                         CHECK(out.emplace(name, shape).second);
                         CHECK((role == model::WeightRole::bias) == name.ends_with(".bias"));
                         CHECK((role == model::WeightRole::norm) == (name.find("norm") != std::string::npos));
                       });
  return out;
}

}  // namespace

TEST_CASE("each architecture has its own tensors") {
  const auto llama = names("llama"), qwen2 = names("qwen2"), qwen3 = names("qwen3");
  CHECK(llama.size() == 2 + 2 * (9 + 7));
  CHECK(qwen2.size() == 2 + 2 * (9 + 3));
  CHECK(qwen3.size() == 3 + 2 * (9 + 2));
  CHECK(llama.contains("model.layers.1.mlp.down_proj.bias"));
  CHECK(qwen2.contains("model.layers.0.self_attn.q_proj.bias"));
  CHECK_FALSE(qwen2.contains("model.layers.0.self_attn.o_proj.bias"));
  CHECK(qwen3.contains("model.layers.1.self_attn.k_norm.weight"));
  CHECK(qwen3.contains("lm_head.weight"));
  CHECK_FALSE(llama.contains("lm_head.weight"));
  CHECK(llama.at("model.layers.0.self_attn.q_proj.weight") == std::vector<std::int64_t>{24, 12});
  CHECK(llama.at("model.layers.0.self_attn.v_proj.weight") == std::vector<std::int64_t>{12, 12});
  CHECK(llama.at("model.layers.0.self_attn.o_proj.weight") == std::vector<std::int64_t>{12, 24});
  CHECK(llama.at("model.layers.0.mlp.down_proj.weight") == std::vector<std::int64_t>{12, 10});
  CHECK(qwen3.at("model.layers.0.self_attn.q_norm.weight") == std::vector<std::int64_t>{6});
}
