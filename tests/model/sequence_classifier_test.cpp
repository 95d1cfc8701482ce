#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/model/sequence_classifier.hpp>

using namespace rlalgo;

TEST_CASE("passes of any size give the same logits") {
  const std::string directory = std::string(rlalgo::support::test_dir) + "/golden/reward/models/qwen3";
  const auto whole = model::load_sequence_classifier(directory);
  CHECK(whole->labels() == 1);
  model::Tensor score = model::CheckpointFiles(directory).convert("score.weight", at::ScalarType::Float);
  model::SequenceClassifier small(whole->backbone(), score, {.tokens_per_pass = 4});
  std::vector<std::vector<std::int32_t>> rows = {{5}, {5, 6, 7}, {5, 6, 9, 10, 11, 12}, {1, 2}, {5, 6, 7}};
  const auto all = whole->first_logits(rows), parts = small.first_logits(rows);
  REQUIRE(all.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(parts[i] == Approx(all[i]).margin(1e-6));
  CHECK(all[1] == Approx(all[4]).margin(1e-6));
  CHECK(all[0] != Approx(all[1]).margin(1e-4));
  CHECK(whole->first_logits({}).empty());
}

TEST_CASE("a tensor that a classifier does not read is named") {
  const std::filesystem::path directory = std::string(rlalgo::support::test_dir) + "/golden/reward/models/qwen3";
  const support::ScratchDirectory scratch;
  std::filesystem::copy_file(directory / "config.json", scratch.path() / "config.json");
  const model::CheckpointFiles files(directory);
  std::vector<model::NamedTensor> tensors;
  for (const auto& [name, place] : files.places()) tensors.emplace_back(name, files.read(name));
  model::write_checkpoint_files(scratch.path(), tensors);
  const auto error = [&] { return support::raised_by([&] { (void)model::load_sequence_classifier(scratch.path()); }); };
  CHECK(error() == "nothing");
  tensors.emplace_back("score.bias", tensor::zeros({1}, at::TensorOptions().dtype(at::kFloat)));
  model::write_checkpoint_files(scratch.path(), tensors);
  CHECK(support::lacks(error(), {"model.20", "score.bias (model.safetensors)"}) == "");
}
