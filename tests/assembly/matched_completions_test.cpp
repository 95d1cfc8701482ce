#include <rlalgo/assembly/matched_completions.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart" / "model";

assembly::Prompts prompts_with(const assembly::LanguageModel& model, const std::string& truth) {
  assembly::Prompts out;
  out.train = assembly::prompts(model, {{{"prompt", "1 +"}, {"ground_truth", truth}}});
  return out;
}
}  // namespace

TEST_CASE("a run that matches nothing is left as it is") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  assembly::Prompts prompts = prompts_with(model, "");
  const assembly::MatchedCompletions matched(model, {}, prompts);
  matched.mask_thoughts(prompts);
  CHECK(prompts.train[0].answer_ids.empty());
  CHECK_FALSE(matched.completion_limit());
  CHECK_FALSE(matched.on_experience(std::make_shared<distributed::World>()));
}

TEST_CASE("ground truths are required, limit completions and are answers where the loss adds their likelihood") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  assembly::Prompts none = prompts_with(model, "");
  CHECK_THROWS_WITH(assembly::MatchedCompletions(model, assembly::MatchedConfig(), none),
                    Catch::Contains("[rlalgo.config.33]"));
  assembly::Prompts prompts = prompts_with(model, "1 2");
  const assembly::MatchedCompletions plain(model, assembly::MatchedConfig(), prompts);
  CHECK(prompts.train[0].answer_ids.empty());
  CHECK_FALSE(plain.completion_limit());
  const assembly::MatchedCompletions matched(
      model, assembly::MatchedConfig{.answers = true, .length_multiplier = 100.0}, prompts);
  const std::vector<data::TokenId> truth = model.tokenizer.encode("1 2", false);
  CHECK(prompts.train[0].answer_ids == truth);
  CHECK(matched.completion_limit()(prompts.train[0]) == static_cast<std::int64_t>(truth.size()) * 100);
}

TEST_CASE("rewards of features take the place of others, and what was drawn is recorded with them") {
  const support::ScratchDirectory scratch;
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  assembly::Prompts prompts = prompts_with(model, "1 2");
  assembly::MatchedConfig config{.record = scratch.path()};
  config.matching.alignment_coef = 2.0;
  config.matching.diversity_coef = 0.5;
  assembly::MatchedCompletions matched(model, config, prompts);
  assembly::Completions completions(model, assembly::Engine());
  std::vector<sampler::WeightedReward> rewards = {{"other", [](const std::string&) { return 1.0; }}};
  matched.reward(rewards, completions, nullptr, nullptr);
  REQUIRE(rewards.size() == 2);
  CHECK(rewards[0].weight == 2.0);
  CHECK(rewards[1].weight == -0.5);

  data::Episode episode;
  episode.prompt = data::Json("1 +");
  episode.columns = prompts.train[0].columns;
  episode.first().completion_ids = {3};
  episode.rewards = {1.0, 0.25};
  const data::EpisodeRow row(episode, episode.first());
  trainer::Experience<data::EpisodeRow> batch;
  batch.rows = {&row};
  matched.on_experience(std::make_shared<distributed::World>())(1, batch);
  std::ifstream file(scratch.path() / sampler::RolloutsFile::name);
  const data::Json line = data::Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  CHECK(line["ground_truth_ids"] == model.tokenizer.encode("1 2", false));
  CHECK(line["samples"][0]["reward"] == 2.0 * 1.0 - 0.5 * 0.25);
}
