#include <rlalgo/config/feature_matching.hpp>

#include <filesystem>
#include <fstream>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/config/completions.hpp>
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

assembly::Documents load(const RunConfig& c) {
  return assembly::load_documents(config::documents_of(c), assembly::LanguageModel::load(config::language_model_of(c)));
}

}  // namespace

TEST_CASE("documents of a dataset") {
  const Folder folder;
  const RunConfig c = folder.run("{\"prompt\": \"1 + 1 =\", \"completion\": \" 2\"}\n{\"prompt\": \"\"}\n",
                                 "ebft_strided_structured.transform", "  mode: strided\nsequence_len: 64\n");
  const assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(c));
  const assembly::Documents documents = assembly::load_documents(config::documents_of(c), model);
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
  const auto packed = [&](const std::string& more, const std::string& type = "ebft_pretrain.transform") {
    return load(folder.run(rows, type, pack + more));
  };
  const auto plain = folder.run(rows, "ebft_pretrain.transform", "  mode: strided\n");
  const assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(plain));
  std::vector<data::TokenId> whole;
  for (const data::Document& text : assembly::load_documents(config::documents_of(plain), model).train) {
    whole.insert(whole.end(), text.ids.begin(), text.ids.end());
    whole.push_back(model.tokenizer.eos_id().value());
  }
  const auto chunks = packed("sequence_len: 16\n").train;
  std::vector<data::TokenId> joined;
  for (const data::Document& chunk : chunks) {
    CHECK((chunk.ids.size() == 16 || &chunk == &chunks.back()));
    CHECK(chunk.texts.empty());
    joined.insert(joined.end(), chunk.ids.begin(), chunk.ids.end());
  }
  CHECK(joined == whole);  // no text is cut to sequence_len before
  const auto apart = packed("  document_masking: true\nsequence_len: 16\n").train;
  REQUIRE(apart.size() == chunks.size());
  CHECK(apart[0].ids == chunks[0].ids);
  CHECK(apart[0].texts.size() > 1);
  const RunConfig c = folder.run(rows, "ebft_pretrain.transform", pack + "sequence_len: 16\n");
  CHECK(config::fingerprints(c, {chunks, {}}) != config::fingerprints(c, {apart, {}}));
  const auto held = packed("sequence_len: 16\nval_set_size: 0.5\n");
  CHECK(held.evaluation.size() == held.train.size());  // packed apart from each other
  CHECK_THROWS_WITH(packed("", "ebft_strided_structured.transform"),
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
  CHECK_THROWS_WITH(load(c), Catch::Contains("[rlalgo.config.36]"));
}

TEST_CASE("rows that are the same document are one where duplicates are dropped") {
  const Folder folder;
  const std::string rows = "{\"text\": \"1 2\"}\n{\"text\": \"3\"}\n{\"text\": \"1 2\"}\n";
  const auto rows_of = [&](const std::string& more) {
    return load(folder.run(rows, "ebft_pretrain.transform", "  mode: strided\n" + more)).train;
  };
  const auto all = rows_of("");
  REQUIRE(all.size() == 3);
  CHECK(all[0].ids == all[2].ids);
  CHECK(all[2].row == 2);
  const auto unique = rows_of("dataset_exact_deduplication: true\n");
  REQUIRE(unique.size() == 2);
  CHECK(unique[1].ids == all[1].ids);
}

TEST_CASE("a type of the other mode is an error that lists its own") {
  const Folder folder;
  for (const char* type : {"ebft_opencode.transform", "chatml.intel", ""}) {
    const RunConfig c = folder.run("{\"text\": \"1\"}\n", type, "  mode: strided\n");
    const assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(c));
    CHECK_THROWS_WITH(assembly::load_documents(config::documents_of(c), model),
                      Catch::Contains("[rlalgo.config.34]") && Catch::Contains("ebft_pretrain.transform"));
  }
}

TEST_CASE("which advantages are estimated") {
  const Folder folder;
  CHECK(config::estimates_from_matching(folder.run("", "", "  mode: structured\n")));
  CHECK_FALSE(config::estimates_from_matching(folder.run("", "", "  mode: structured\ntrl: {scale_rewards: true}\n")));
  CHECK(
      config::estimates_from_matching(folder.run("", "", "  advantage_estimator: rloo\ntrl: {scale_rewards: true}\n")));
}

TEST_CASE("what a file says of features and ground truths arrives there") {
  const Folder folder;
  const RunConfig c = folder.run("", "ebft_opencode.transform",
                                 "  mode: structured\n  feature_layers: [0.5, 1]\n  feature_model: ./f\n"
                                 "  feature_normalization: per_layer\n  gt_length_multiplier: 2\n");
  const assembly::FeatureNetworkConfig network = config::feature_network_of(c);
  CHECK(network.model->name == "./f");
  CHECK(network.layers == std::vector<double>{0.5, 1.0});
  CHECK(network.normalization == feature::Normalization::per_layer);
  const assembly::LanguageModel model = assembly::LanguageModel::load(model_directory.string());
  const auto matched = config::matched_of(c, model.stop_ids);
  REQUIRE(matched);
  CHECK(matched->network.layers == network.layers);
  CHECK(matched->length_multiplier == 2.0);
  CHECK(matched->carries_on.value().stop_ids == model.stop_ids);
  CHECK(matched->record.empty());
  RunConfig other;
  other.rl = "grpo";
  CHECK_FALSE(config::matched_of(other, model.stop_ids));
}
