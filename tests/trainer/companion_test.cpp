#include <support/catch.hpp>
#include <support/door.hpp>
#include <support/scratch.hpp>

#include <memory>
#include <vector>

#include <rlalgo/grpo.hpp>
#include <rlalgo/trainer/companion.hpp>

namespace {
using namespace rlalgo;

struct Recorder final : trainer::Companion {
  void after_step(std::int64_t step, core::Metrics& metrics) override {
    steps.push_back(step);
    metrics.last("companion", static_cast<double>(step));
  }
  void save(const std::filesystem::path&) const override { ++saved; }
  void restore(const std::filesystem::path&) override { ++restored; }
  std::vector<std::int64_t> steps;
  mutable int saved = 0;
  int restored = 0;
};

std::shared_ptr<Recorder> train(const std::filesystem::path& out, std::int64_t steps, const std::string& resume) {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
  rlalgo::support::BanditPulls pulls{*bandit, 2};
  auto recorder = std::make_shared<Recorder>();
  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 8};
  config.run.trainer.loop.max_steps = steps;
  config.run.trainer.loop.save = run::Cadence::steps(2);
  config.run.trainer.loop.output_dir = out;
  if (!resume.empty()) config.run.trainer.loop.resume_from_checkpoint = resume;
  std::vector<data::TokenizedPrompt> prompts(4);
  for (auto& p : prompts) p = {.row = 0, .ids = {0}, .prompt = "p", .columns = {}};
  const auto reward = reward::from("sum", [](const reward::Sample& s) { return static_cast<double>(s.ids[0]); });
  auto trainer = make_trainer<Grpo>(
      config,
      trainer::OnlineInputs<rlalgo::support::BanditPulls>{
          .policy = bandit, .generator = pulls, .prompts = prompts, .rewards = {{reward}}, .companions = {recorder}});
  (void)trainer.run();
  return recorder;
}
}  // namespace

TEST_CASE("a companion sees every step and is part of every checkpoint") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto first = train(scratch.path(), 4, "");
  CHECK(first->steps == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(first->saved >= 2);
  CHECK(first->restored == 0);
  const auto second = train(scratch.path(), 5, (scratch.path() / "checkpoint-4").string());
  CHECK(second->restored == 1);
  CHECK(second->steps == std::vector<std::int64_t>{5});
}
