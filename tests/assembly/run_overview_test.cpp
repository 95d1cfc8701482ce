#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <memory>
#include <vector>

#include <rlalgo/assembly/run_overview.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

run::LoopConfig loop() {
  run::LoopConfig out;
  out.max_steps = 10;
  out.train_batch_size = 4;
  out.output_dir = "there";
  out.save = run::Cadence::steps(5);
  return out;
}

}  // namespace

TEST_CASE("an overview of prompts counts them, and shows their first rows") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  std::vector<data::TokenizedPrompt> prompts(3);
  for (std::size_t i = 0; i < 3; ++i) prompts[i].ids.assign(i + 2, 5);
  assembly::Overview o = assembly::overview_of(
      model, loop(), 1, {.micro_batch_size = 4, .gradient_accumulation_steps = 2, .num_generations = 4}, 7, prompts, 2);
  CHECK(o.rows == 3);
  CHECK(o.evaluation_rows == 2);
  CHECK(o.tokens == 9);
  CHECK(o.longest == 4);
  CHECK(o.rows_per_step == 2);
  CHECK(o.micro_batch_tokens == 4 + 4 * 7);
  CHECK(o.schedule == "checkpoints every 5 steps");
  CHECK(o.samples(1).size() == 1);
  assembly::add_model(o, {.dtype = "float32 (because)"}, *model.decoder, true);
  CHECK(o.trained == o.parameters);
  CHECK(o.dtype == "float32 (because)");
  CHECK(o.memory.at(0).second == Approx(4.0 * static_cast<double>(o.parameters)));
  CHECK(o.memory.at(3).second == o.memory.at(0).second);  // the reference is a copy
  assembly::measure(o, {}, *model.decoder);
  CHECK(o.training_seconds > 0);
  CHECK(o.generation_seconds > 0);
  assembly::Overview other = assembly::overview_of(
      model, loop(), 1, {.micro_batch_size = 4, .gradient_accumulation_steps = 2, .num_generations = 4}, 7, prompts, 2);
  assembly::measure(other, {.measurable = false}, *model.decoder);
  CHECK(other.training_seconds == 0);
}

TEST_CASE("an overview of answers counts pairs") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  const auto answers = std::make_shared<data::AnswerSet>(2);
  const std::vector<data::TokenId> prompt = {1, 2}, chosen = {3, 4}, rejected = {5};
  answers->append(0, true, prompt, chosen);
  answers->append(0, false, prompt, rejected);
  const assembly::Overview o = assembly::overview_of(model, loop(), 2, 8, answers, nullptr);
  CHECK(o.unit == "pairs");
  CHECK(o.rows == 1);
  CHECK(o.tokens == 7);
  CHECK(o.longest == 4);
  CHECK(o.ranks == 2);
  CHECK(o.samples(5).size() == 2);
}
