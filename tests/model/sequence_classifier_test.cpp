#include <cstdint>
#include <string>
#include <vector>

#include <support/catch.hpp>

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
