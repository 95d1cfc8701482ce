#include <rlalgo/config/feature_matching.hpp>

#include <filesystem>
#include <fstream>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/model/anchored_tree.hpp>

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

TEST_CASE("relative depths that are one layer are told") {
  const Folder folder;
  const auto told = [&](const std::string& layers) {
    const RunConfig c =
        folder.run("", "ebft_pretrain.transform", "  mode: strided\n  feature_layers: " + layers + "\n");
    return config::repeated_layers(c, config::feature_network(c, config::load_language_model(c)));
  };
  const std::int64_t layers = model::read_hf_config(model_directory).decoder.layers;
  REQUIRE(layers < 50);
  CHECK(told("[0.98, 0.99]").find(std::to_string(layers - 1) + ", " + std::to_string(layers - 1)) != std::string::npos);
  CHECK(told("[0, 1]").empty());
  CHECK(told("[0.5, 0.5]").empty());  // said when the file was read
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

TEST_CASE("texts in chunks, seen by each other or not") {
  const Folder folder;
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += "{\"text\": \"" + std::to_string(i) + " + 1 = " + std::to_string(i + 1) + "\"}\n";
  const std::string pack = "  mode: strided\n  pack_documents: true\n";
  const auto load = [&](const std::string& more, const std::string& type = "ebft_pretrain.transform") {
    const RunConfig c = folder.run(rows, type, pack + more);
    return config::load_documents(c, config::load_language_model(c));
  };
  const auto plain = folder.run(rows, "ebft_pretrain.transform", "  mode: strided\n");
  const config::LanguageModel model = config::load_language_model(plain);
  std::vector<data::TokenId> whole;
  for (const data::Document& text : config::load_documents(plain, model).train) {
    whole.insert(whole.end(), text.ids.begin(), text.ids.end());
    whole.push_back(model.tokenizer.eos_id().value());
  }
  const auto chunks = load("sequence_len: 16\n").train;
  std::vector<data::TokenId> joined;
  for (const data::Document& chunk : chunks) {
    CHECK((chunk.ids.size() == 16 || &chunk == &chunks.back()));
    CHECK(chunk.texts.empty());
    joined.insert(joined.end(), chunk.ids.begin(), chunk.ids.end());
  }
  CHECK(joined == whole);  // no text is cut to sequence_len before
  const auto apart = load("  document_masking: true\nsequence_len: 16\n").train;
  REQUIRE(apart.size() == chunks.size());
  CHECK(apart[0].ids == chunks[0].ids);
  CHECK(apart[0].texts.size() > 1);
  const RunConfig c = folder.run(rows, "ebft_pretrain.transform", pack + "sequence_len: 16\n");
  CHECK(config::fingerprints(c, {chunks, {}}) != config::fingerprints(c, {apart, {}}));
  const auto held = load("sequence_len: 16\nval_set_size: 0.5\n");
  CHECK(held.evaluation.size() == held.train.size());  // packed apart from each other
  CHECK_THROWS_WITH(load("", "ebft_strided_structured.transform"),
                    Catch::Contains("[rlalgo.config.8]") && Catch::Contains("ebft.pack_documents"));
}

TEST_CASE("packing needs an end token") {
  const Folder folder;
  const fs::path copy = folder.scratch.path() / "model";
  fs::copy(model_directory, copy);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!fs::exists(copy / name)) continue;
    model::Json json = model::Json::parse(std::ifstream(copy / name));
    json.erase("eos_token");
    std::ofstream(copy / name) << json.dump();
  }
  RunConfig c =
      folder.run("{\"text\": \"1\"}\n", "ebft_pretrain.transform", "  mode: strided\n  pack_documents: true\n");
  c.base_model = copy.string();
  CHECK_THROWS_WITH(config::load_documents(c, config::load_language_model(c)), Catch::Contains("[rlalgo.config.36]"));
}

TEST_CASE("rows that are the same document are one where duplicates are dropped") {
  const Folder folder;
  const std::string rows = "{\"text\": \"1 2\"}\n{\"text\": \"3\"}\n{\"text\": \"1 2\"}\n";
  const auto load = [&](const std::string& more) {
    const RunConfig c = folder.run(rows, "ebft_pretrain.transform", "  mode: strided\n" + more);
    return config::load_documents(c, config::load_language_model(c)).train;
  };
  const auto all = load("");
  REQUIRE(all.size() == 3);
  CHECK(all[0].ids == all[2].ids);
  CHECK(all[2].row == 2);
  const auto unique = load("dataset_exact_deduplication: true\n");
  REQUIRE(unique.size() == 2);
  CHECK(unique[1].ids == all[1].ids);
}

TEST_CASE("the spread of the advantages of completions") {
  std::vector<data::Rollout> rollouts(3);
  for (std::size_t i = 0; i < 3; ++i) rollouts[i].advantage = static_cast<double>(i);
  std::vector<const data::Rollout*> rows = {&rollouts[0], &rollouts[1], &rollouts[2]};
  core::Metrics metrics;
  config::add_advantage_spread(rows, metrics);
  CHECK(metrics.value("ebft/advantages_std") == Approx(1.0));
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
  const auto truths = std::make_shared<config::Truths>();
  std::vector<data::TokenizedPrompt> prompts(2);
  prompts[0].columns = {{"ground_truth", "1 2"}};
  prompts[1].row = 1;
  for (const data::Json& columns :
       {data::Json::object(), data::Json{{"ground_truth", ""}}, data::Json{{"ground_truth", nullptr}}}) {
    prompts[1].columns = columns;
    CHECK_THROWS_WITH(config::require_truths(c, model, *truths, prompts),
                      Catch::Contains("[rlalgo.config.33]") && Catch::Contains("row 1"));
  }
  std::string longer;
  for (int i = 0; i < 100; ++i) longer += "7 ";
  prompts[1].columns = {{"ground_truth", longer}};
  config::require_truths(c, model, *truths, prompts);
  CHECK(prompts[0].answer_ids == model.tokenizer.encode("1 2", false));
  CHECK(truths->of(prompts[1].columns) == model.tokenizer.encode(longer, false));
  CHECK(truths->of({{"ground_truth", "3"}}).empty());
  CHECK(truths->of({{"truth", "1 2"}}).empty());
  const auto limit = config::completion_limit(c, truths);
  REQUIRE(limit);
  CHECK(limit(prompts[0]) == 64);
  CHECK(limit(prompts[1]) == static_cast<std::int64_t>(1.5 * static_cast<double>(prompts[1].answer_ids.size())));
}

TEST_CASE("thoughts of ground truths may go without a likelihood term") {
  const Folder folder;
  for (const bool asked : {false, true}) {
    const RunConfig c =
        folder.run("", "ebft_reasoning.transform",
                   std::string("  ce_coef: 0.5\n  mask_thinking_ce: ") + (asked ? "true\n" : "false\n"));
    const config::LanguageModel model = config::load_language_model(c);
    std::vector<data::TokenizedPrompt> prompts(1);
    prompts[0].ids = {1, 2};
    prompts[0].answer_ids = {3, 4, 5};
    config::mask_thoughts(c, model, prompts);
    // The marks are several tokens each for this tokenizer, so nothing is masked; of single ones: document_transform_test.
    CHECK(prompts[0].answer_mask == (asked ? std::vector<std::uint8_t>{1, 1, 1} : std::vector<std::uint8_t>{}));
  }
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
