#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <vector>

#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {
const fs::path model_directory = fs::path(support::test_dir).parent_path() / "examples/quickstart/model";
}  // namespace

TEST_CASE("the feature network is the base as it was read, whatever becomes of the policy") {
  for (const bool adapter : {false, true}) {
    assembly::LanguageModelConfig named{.model = {model_directory.string()}};
    if (adapter) named.lora = model::LoraConfig{.r = 2, .target_modules = {"q_proj"}};
    const assembly::LanguageModel model = assembly::LanguageModel::load(named);
    const feature::FeatureNetwork network = assembly::feature_network({.layers = {0.5, 1.0}}, model);
    CHECK(network.depths().back() == model.decoder->config().layers);
    model::TokenTree tree;
    (void)model::append_document(tree, std::vector<std::int32_t>{5, 6, 7}, {});
    const std::vector<std::int64_t> last = {2};
    const at::Tensor before = network(tree).of(last);
    {
      const c10::NoGradGuard no_grad;
      for (const model::Parameter& p : model.decoder->parameters()) p.value.detach().add_(0.1);
    }
    CHECK(network(tree).of(last).equal(before));
  }
}

TEST_CASE("a feature model has the policy's vocabulary") {
  const support::ScratchDirectory scratch;
  const auto other = scratch.path() / "other";
  model::Json json = {{"model_type", "llama"},    {"vocab_size", 23},
                      {"hidden_size", 12},        {"intermediate_size", 10},
                      {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                      {"num_key_value_heads", 2}, {"head_dim", 6},
                      {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 512},
                      {"rope_theta", 100.0},      {"tie_word_embeddings", false},
                      {"eos_token_id", 2}};
  fs::create_directories(other);
  model::save_decoder(*model::random_decoder(model::parse_hf_config(json, "test"), 1), other, {});
  const assembly::LanguageModel model = assembly::LanguageModel::load(model_directory.string());
  CHECK_THROWS_WITH(assembly::feature_network({.model = assembly::NamedModel{other.string(), "c.yaml:7"}}, model),
                    Catch::Contains("[rlalgo.config.35]") && Catch::Contains("23") && Catch::Contains("c.yaml:7"));
}
