#include <support/catch.hpp>

#include <filesystem>
#include <fstream>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/trainer/online.hpp>
#include <support/bandit.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

TEST_CASE("an online run logs, evaluates on its held-out prompts and counts epochs") {
  std::string name = (fs::temp_directory_path() / "rlalgo_online_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4);
  rlalgo::support::BanditPulls pulls{*bandit, 2};
  const auto reward = reward::from("arm", [](const reward::Sample& s) { return s.ids[0] / 3.0; });
  const std::vector<data::TokenizedPrompt> prompts(6, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}});

  trainer::OnlineConfig config;
  config.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 4};
  config.evaluation_generations = 2;
  config.evaluation_batch_size = 3;
  config.trainer.schedule = {.name = "constant", .learning_rate = 0.5};
  config.trainer.loop.max_steps = 6;
  config.trainer.loop.output_dir = folder;
  config.trainer.loop.progress = false;
  config.trainer.loop.eval = run::Cadence::steps(3);
  config.trainer.loop.eval_first = true;
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
  auto trainer = trainer::make_online(config, Loss({}), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
                                      trainer::OnlineInputs<rlalgo::support::BanditPulls>{
                                          .policy = bandit,
                                          .generator = pulls,
                                          .prompts = prompts,
                                          .rewards = {{reward, 2.0}},
                                          .evaluation_prompts = {prompts.begin(), prompts.begin() + 3}});
  // 6 prompts, 2 per step: three steps an epoch.
  CHECK(trainer.config().steps_per_epoch == 3.0);
  trainer.run();

  std::ifstream in(folder / "metrics.jsonl");
  std::string line;
  int evaluations = 0;
  double before = 0, after = 0;
  while (std::getline(in, line)) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("eval_reward")) {
      CHECK(record["reward"].get<double>() == Approx(2.0 * record["rewards/arm/mean"].get<double>()));
      CHECK(record["epoch"].get<double>() == Approx(record["step"].get<double>() / 3.0));
      continue;
    }
    (evaluations++ == 0 ? before : after) = record["eval_reward"].get<double>();
  }
  CHECK(evaluations == 3);  // before the first step, after steps 3 and 6
  CHECK(after > before);    // evaluations draw the same random numbers
  fs::remove_all(folder);
}
