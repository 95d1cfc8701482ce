#include <support/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/any_loss.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/fixed_length.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/trainer/online.hpp>
#include <support/bandit.hpp>
#include <support/thread_world.hpp>

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

namespace {

template <class Reduction>
using Clipped = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, Reduction>;

// Losses, gradient norms and the logits after five steps in float64.
template <class Reduction>
std::vector<double> trained(const std::shared_ptr<distributed::World>& world) {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(5, at::kDouble);
  rlalgo::support::BanditPulls pulls{*bandit, 3};
  std::vector<data::TokenizedPrompt> prompts;
  for (int p = 0; p < 12; ++p) prompts.push_back({.row = p, .ids = {0}, .prompt = "p", .columns = {}});
  trainer::OnlineConfig config;
  config.rollouts.geometry = {.micro_batch_size = 4,
                              .gradient_accumulation_steps = 4,
                              .steps_per_generation = 4,
                              .num_iterations = 2,
                              .num_generations = 4};
  config.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.trainer.loop.max_steps = 5;
  using Loss = loss::AnyLossLike<Clipped<loss::GlobalTokenCount>>;
  auto trainer = trainer::make_online(
      config, Loss(Clipped<Reduction>({})), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
      trainer::OnlineInputs<rlalgo::support::BanditPulls>{
          .policy = bandit,
          .generator = pulls,
          .prompts = prompts,
          .rewards = {{reward::from("arm", [](const reward::Sample& s) { return s.ids[0] / 3.0; }), 1.0}},
          .world = world});
  std::vector<double> out;
  for (std::int64_t step = 0; step < 5; ++step) {
    const run::StepResult result = trainer.step(step);
    out.insert(out.end(), {result.loss, result.grad_norm});
  }
  const double* const logits = bandit->logits.template const_data_ptr<double>();
  out.insert(out.end(), logits, logits + 5);
  return out;
}

template <class Reduction>
void check_ranks() {
  const std::vector<double> one = trained<Reduction>(std::make_shared<distributed::World>());
  CHECK(std::abs(one.back()) > 0.1);  // something was learnt
  for (const int ranks : {2, 4})
    rlalgo::support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
      const std::vector<double> many = trained<Reduction>(world);
      RANK_CHECK(many.size() == one.size());
      for (std::size_t i = 0; i < one.size(); ++i) RANK_CHECK(std::abs(many[i] - one[i]) <= 1e-10);
    });
}

}  // namespace

TEST_CASE("2 and 4 ranks train as one in float64, whatever the reduction") {
  check_ranks<loss::SequenceMean>();
  check_ranks<loss::TokenMean>();
  check_ranks<loss::GlobalTokenCount>();
  check_ranks<loss::FixedLength>();
}
