#include <rlalgo/config/feature_matching.hpp>

#include <filesystem>
#include <fstream>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/config/parse.hpp>

using namespace rlalgo;
using config::RunConfig;
namespace fs = std::filesystem;

namespace {

const fs::path model_directory = fs::path(support::test_dir).parent_path() / "examples/quickstart/model";

struct Folder {
  support::ScratchDirectory scratch;
  RunConfig run(const std::string& rows, const std::string& type, const std::string& ebft) const {
    std::ofstream(scratch.path() / "rows.jsonl") << rows;
    return config::parse_run_config(config::parse_document(
        "base_model: " + model_directory.string() + "\nrl: ebft\nlearning_rate: 1e-4\nmicro_batch_size: 8\n" +
            "shuffle_merged_datasets: false\ndatasets:\n  - path: " + (scratch.path() / "rows.jsonl").string() +
            "\n    ds_type: json\n" + (type.empty() ? "" : "    type: " + type + "\n") + "ebft:\n" + ebft,
        "c.yaml"));
  }
};

}  // namespace

TEST_CASE("the feature network is the base as it was read, whatever becomes of the policy") {
  const Folder folder;
  for (const char* adapter : {"", "adapter: lora\nlora_r: 2\nlora_alpha: 4\nlora_target_linear: true\n"}) {
    RunConfig c = folder.run("{\"text\": \"1\"}\n", "ebft_pretrain.transform",
                             std::string("  mode: strided\n  feature_layers: [0.5, 1]\n") + adapter);
    const config::LanguageModel model = config::load_language_model(c);
    const feature::FeatureNetwork network = config::feature_network(c, model);
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

TEST_CASE("documents of a dataset") {
  const Folder folder;
  const RunConfig c = folder.run("{\"prompt\": \"1 + 1 =\", \"completion\": \" 2\"}\n{\"prompt\": \"\"}\n",
                                 "ebft_strided_structured.transform", "  mode: strided\nsequence_len: 64\n");
  const config::LanguageModel model = config::load_language_model(c);
  const config::Documents documents = config::load_documents(c, model);
  REQUIRE(documents.train.size() == 2);
  CHECK(documents.evaluation.empty());
  CHECK(documents.train[0].prompt_length.has_value());
  CHECK(documents.train[0].ids.size() == documents.train[0].loss_mask.size());
  CHECK(documents.train[0].loss_mask.back() == 1);
  CHECK(config::fingerprints(c, documents).contains("weights of base_model"));
}

TEST_CASE("a type of the other mode is an error that lists its own") {
  const Folder folder;
  for (const char* type : {"ebft_opencode.transform", "chatml.intel", ""}) {
    const RunConfig c = folder.run("{\"text\": \"1\"}\n", type, "  mode: strided\n");
    const config::LanguageModel model = config::load_language_model(c);
    CHECK_THROWS_WITH(config::load_documents(c, model),
                      Catch::Contains("[rlalgo.config.34]") && Catch::Contains("ebft_pretrain.transform"));
  }
}

TEST_CASE("a prompt without a ground truth is named before anything is generated") {
  const Folder folder;
  const RunConfig c = folder.run("", "ebft_opencode.transform", "  mode: structured\n  ce_coef: 0.5\n");
  const config::LanguageModel model = config::load_language_model(c);
  std::vector<data::TokenizedPrompt> prompts(2);
  prompts[0].columns = {{"ground_truth", "1 2"}};
  prompts[1].row = 1;
  for (const data::Json& columns :
       {data::Json::object(), data::Json{{"ground_truth", ""}}, data::Json{{"ground_truth", nullptr}}}) {
    prompts[1].columns = columns;
    CHECK_THROWS_WITH(config::require_truths(c, model, prompts),
                      Catch::Contains("[rlalgo.config.33]") && Catch::Contains("row 1"));
  }
  prompts.pop_back();
  config::require_truths(c, model, prompts);
  CHECK(prompts[0].answer_ids == model.tokenizer.encode("1 2", false));
  const auto limit = config::completion_limit(c, model);
  REQUIRE(limit);
  CHECK(limit(prompts[0]) == 64);
  std::string longer;
  for (int i = 0; i < 100; ++i) longer += "7 ";
  prompts[0].columns["ground_truth"] = longer;
  CHECK(limit(prompts[0]) ==
        static_cast<std::int64_t>(1.5 * static_cast<double>(model.tokenizer.encode(longer, false).size())));
}

TEST_CASE("a feature model has the policy's vocabulary") {
  const Folder folder;
  const auto other = folder.scratch.path() / "other";
  model::Json json = {{"model_type", "llama"},    {"vocab_size", 23},
                      {"hidden_size", 12},        {"intermediate_size", 10},
                      {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                      {"num_key_value_heads", 2}, {"head_dim", 6},
                      {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 512},
                      {"rope_theta", 100.0},      {"tie_word_embeddings", false},
                      {"eos_token_id", 2}};
  fs::create_directories(other);
  model::save_decoder(*model::random_decoder(model::parse_hf_config(json, "test"), 1), other, {});
  const RunConfig c =
      folder.run("", "ebft_pretrain.transform", "  mode: strided\n  feature_model: " + other.string() + "\n");
  const config::LanguageModel model = config::load_language_model(c);
  CHECK_THROWS_WITH(config::feature_network(c, model), Catch::Contains("[rlalgo.config.35]") && Catch::Contains("23"));
}

TEST_CASE("which advantages are estimated") {
  const Folder folder;
  CHECK(config::estimates_from_matching(folder.run("", "", "  mode: structured\n")));
  CHECK_FALSE(config::estimates_from_matching(folder.run("", "", "  mode: structured\ntrl: {scale_rewards: true}\n")));
  CHECK(
      config::estimates_from_matching(folder.run("", "", "  advantage_estimator: rloo\ntrl: {scale_rewards: true}\n")));
}
