#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <support/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sync/shared_weights.hpp>
#include <rlalgo/trainer/trainer.hpp>
#include <support/bandit.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {

// −Σ A·exp(x − o)·m / tokens of the step: enough to see which columns and counts the trainer hands over.
struct RatioLoss {
  struct Config {};
  static constexpr loss::Needs needs{.old_log_prob = true};
  static constexpr loss::RowKind rows = loss::RowKind::samples;
  loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const {
    const at::Tensor old = s.old_log_prob.defined() ? s.old_log_prob : s.log_prob.detach();
    const at::Tensor ratio = (s.log_prob - old).exp();
    loss::Result result;
    result.value = -(ratio * s.advantage.index_select(0, s.row) * s.mask).sum() / counts.tokens;
    result.metrics.mean("ratio", ratio.sum().item<double>(), static_cast<double>(ratio.numel()));
    return result;
  }
};

using Pulls = rlalgo::support::BanditPulls;
using TestTrainer = trainer::Trainer<RatioLoss, advantage::GroupRelative<>, sampler::Rollouts<Pulls>,
                                     aggregation::SumThenNormalize, sync::SharedWeights>;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "rlalgo_trainer_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

// Counts the passes that are trained on.
struct Counted : rlalgo::support::Bandit {
  Counted() : Bandit(4, at::kDouble) {}
  model::Scores score(const model::TokenTree& tree, const model::ScoreOptions& options) override {
    passes += c10::GradMode::is_enabled() ? 1 : 0;
    return Bandit::score(tree, options);
  }
  int passes = 0;
};

// Notes how many passes had been when the last one was announced.
struct Announced final : trainer::Placement {
  explicit Announced(std::shared_ptr<Counted> bandit) : policy(std::move(bandit)), whole(policy->parameters(), world) {}
  std::vector<model::Parameter> parameters() override { return policy->parameters(); }
  void require_same_start() override {}
  void begin_last() override { before.push_back(policy->passes); }
  double reduce_gradients(double max_norm, double factor) override { return whole.reduce_gradients(max_norm, factor); }
  void load_weights(const fs::path& directory) override { whole.load_weights(directory); }

  std::shared_ptr<Counted> policy;
  std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
  trainer::WholePlacement whole;
  std::vector<int> before;
};

struct Run {
  std::shared_ptr<Counted> bandit = std::make_shared<Counted>();
  std::shared_ptr<Announced> placement = std::make_shared<Announced>(bandit);
  Pulls pulls{*bandit, 3};
  std::unique_ptr<TestTrainer> trainer;

  Run(sampler::Geometry geometry, std::int64_t steps, const fs::path& output,
      std::optional<fs::path> resume = std::nullopt, double learning_rate = 0.1, bool idle = false, bool skip = false) {
    std::vector<data::TokenizedPrompt> prompts(3);
    for (std::size_t i = 0; i < prompts.size(); ++i)
      prompts[i] = {
          .row = static_cast<std::int64_t>(i), .ids = {0}, .prompt = i < 2 && idle ? "idle" : "p", .columns = {}};
    const auto reward = reward::from("arm", [](const reward::Sample& s) {
      return s.prompt == "idle" ? 0.5 : static_cast<double>(s.ids.back());  // idle: one reward for all completions
    });
    sync::SharedWeights sync;
    sampler::RolloutsConfig config;
    config.geometry = geometry;
    auto rollouts = std::make_shared<sampler::Rollouts<Pulls>>(
        prompts, pulls, std::vector<sampler::WeightedReward>{{reward}}, [](auto) { return std::string("t"); }, config,
        sync.version_source());
    trainer::TrainerConfig settings;
    settings.schedule = {.name = "constant", .learning_rate = learning_rate, .warmup_steps = 0, .total_steps = steps};
    settings.skip_zero_advantages = skip;
    settings.loop.max_steps = steps;
    settings.loop.output_dir = output;
    settings.loop.save = run::Cadence::steps(1);
    settings.loop.resume_from_checkpoint = resume;
    trainer = std::make_unique<TestTrainer>(settings, TestTrainer::Parts{.policy = bandit,
                                                                         .loss = {},
                                                                         .estimator = advantage::GroupRelative<>(),
                                                                         .sampler = rollouts,
                                                                         .aggregation = {},
                                                                         .sync = sync,
                                                                         .placement = placement});
  }
};

// v ← decay·v + g · w ← w − rate·v
class Momentum {
 public:
  struct Config {
    double decay = 0.9;
  };
  Momentum(std::vector<model::Parameter> parameters, Config config)
      : parameters_(std::move(parameters)), config_(config) {
    for (const model::Parameter& p : parameters_) velocity_.push_back(at::zeros_like(p.value.detach()));
  }
  void step(double rate) {
    const c10::AutoGradMode no_gradient(false);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      velocity_[i].mul_(config_.decay).add_(parameters_[i].value.grad());
      parameters_[i].value.sub_(velocity_[i], rate);
    }
  }
  void zero_grad() {
    for (model::Parameter& p : parameters_) p.value.mutable_grad() = at::Tensor();
  }
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state() const {
    std::vector<std::pair<std::string, at::Tensor>> out;
    for (std::size_t i = 0; i < parameters_.size(); ++i) out.emplace_back(parameters_[i].name + ".v", velocity_[i]);
    return out;
  }
  void load_state(const std::map<std::string, at::Tensor>& state) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) velocity_[i].copy_(state.at(parameters_[i].name + ".v"));
  }

 private:
  std::vector<model::Parameter> parameters_;
  Config config_;
  std::vector<at::Tensor> velocity_;
};
static_assert(optim::Optimizer<Momentum>);

std::string bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a bandit learns its best arm") {
  const Folder folder;
  Run run({.micro_batch_size = 24, .num_generations = 8}, 40, folder.path);
  CHECK(run.trainer->run().step == 40);
  const at::Tensor p = at::log_softmax(run.bandit->logits.detach(), 0).exp();
  CHECK(p[3].item<double>() > 0.8);
  CHECK(run.trainer->version() == 40);
}

TEST_CASE("an optimizer of one's own trains, is saved and resumed") {
  const Folder folder;
  const auto run = [&](std::int64_t steps, const std::string& name, std::optional<fs::path> resume) {
    const auto bandit = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
    Pulls pulls{*bandit};
    const auto rollouts = std::make_shared<sampler::Rollouts<Pulls>>(
        std::vector<data::TokenizedPrompt>(3, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}}), pulls,
        std::vector<sampler::WeightedReward>{
            {reward::from("arm", [](const reward::Sample& s) { return static_cast<double>(s.ids.back()); })}},
        [](auto) { return std::string("t"); },
        sampler::RolloutsConfig{.geometry = {.micro_batch_size = 24, .num_generations = 8}},
        sync::SharedWeights().version_source());
    using SgdTrainer = trainer::Trainer<RatioLoss, advantage::GroupRelative<>, sampler::Rollouts<Pulls>,
                                        aggregation::SumThenNormalize, sync::SharedWeights, Momentum>;
    trainer::BasicTrainerConfig<Momentum> settings;
    settings.optimizer.decay = 0.5;
    settings.schedule = {.name = "constant", .learning_rate = 0.1, .warmup_steps = 0, .total_steps = 6};
    settings.loop.max_steps = steps;
    settings.loop.output_dir = folder.path / name;
    settings.loop.save = run::Cadence::steps(1);
    settings.loop.resume_from_checkpoint = std::move(resume);
    settings.loop.progress = false;
    SgdTrainer trainer(settings, {.policy = bandit,
                                  .loss = {},
                                  .estimator = advantage::GroupRelative<>(),
                                  .sampler = rollouts,
                                  .aggregation = {},
                                  .sync = {}});
    CHECK(trainer.run().step == steps);
    return bandit->logits.detach().clone();
  };
  const at::Tensor whole = run(6, "whole", {});
  run(3, "parts", {});
  const at::Tensor resumed = run(6, "parts", folder.path / "parts/checkpoint-3");
  CHECK(whole.equal(resumed));  // the momentum of step 3 came back
  CHECK(whole[3].item<double>() > whole[0].item<double>());
}

TEST_CASE("a schedule that follows evaluations, or moves a momentum, needs them") {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
  Pulls pulls{*bandit};
  const auto rollouts = std::make_shared<sampler::Rollouts<Pulls>>(
      std::vector<data::TokenizedPrompt>(3, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}}), pulls,
      std::vector<sampler::WeightedReward>{
          {reward::from("arm", [](const reward::Sample& s) { return static_cast<double>(s.ids.back()); })}},
      [](auto) { return std::string("t"); },
      sampler::RolloutsConfig{.geometry = {.micro_batch_size = 24, .num_generations = 8}},
      sync::SharedWeights().version_source());
  const auto make = [&]<class O>(trainer::BasicTrainerConfig<O> settings, const std::string& schedule) {
    using Made = trainer::Trainer<RatioLoss, advantage::GroupRelative<>, sampler::Rollouts<Pulls>,
                                  aggregation::SumThenNormalize, sync::SharedWeights, O>;
    settings.schedule = {.name = schedule, .warmup_steps = 2, .total_steps = 6};
    return Made(settings, {.policy = bandit,
                           .loss = {},
                           .estimator = advantage::GroupRelative<>(),
                           .sampler = rollouts,
                           .aggregation = {},
                           .sync = {}});
  };
  using Catch::Matchers::Contains;
  CHECK_NOTHROW(make(trainer::TrainerConfig(), "one_cycle"));
  CHECK_THROWS_WITH(make(trainer::BasicTrainerConfig<Momentum>(), "one_cycle"), Contains("[rlalgo.trainer.22]"));
  CHECK_THROWS_WITH(make(trainer::TrainerConfig(), "reduce_lr_on_plateau"), Contains("[rlalgo.trainer.23]"));
}

TEST_CASE("groups of parameters have rates of their own in a trainer") {
  const Folder folder;
  const auto train = [&]<class O>(trainer::BasicTrainerConfig<O> settings, double rate, optim::ParameterGroups groups) {
    const auto bandit = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
    Pulls pulls{*bandit};
    const auto rollouts = std::make_shared<sampler::Rollouts<Pulls>>(
        std::vector<data::TokenizedPrompt>(3, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}}), pulls,
        std::vector<sampler::WeightedReward>{
            {reward::from("arm", [](const reward::Sample& s) { return static_cast<double>(s.ids.back()); })}},
        [](auto) { return std::string("t"); },
        sampler::RolloutsConfig{.geometry = {.micro_batch_size = 24, .num_generations = 8}},
        sync::SharedWeights().version_source());
    settings.schedule = {.name = "constant", .learning_rate = rate, .warmup_steps = 0, .total_steps = 3};
    settings.groups = std::move(groups);
    settings.loop.max_steps = 3;
    settings.loop.output_dir = folder.path / "out";
    settings.loop.progress = false;
    trainer::Trainer<RatioLoss, advantage::GroupRelative<>, sampler::Rollouts<Pulls>, aggregation::SumThenNormalize,
                     sync::SharedWeights, O>
        trainer(settings, {.policy = bandit,
                           .loss = {},
                           .estimator = advantage::GroupRelative<>(),
                           .sampler = rollouts,
                           .aggregation = {},
                           .sync = {}});
    CHECK(trainer.run().step == 3);
    return bandit->logits.detach().clone();
  };
  const auto all = [](double rate) {
    return optim::ParameterGroups{{.name = "all", .has = [](const model::Parameter&) { return true; }, .rate = rate}};
  };
  const at::Tensor slow = train(trainer::TrainerConfig(), 0.1, {});
  CHECK(train(trainer::TrainerConfig(), 0.05, all(2.0)).equal(slow));
  CHECK_FALSE(train(trainer::TrainerConfig(), 0.1, all(2.0)).equal(slow));
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(train(trainer::BasicTrainerConfig<Momentum>(), 0.1, all(2.0)), Contains("[rlalgo.optim.11]"));
  CHECK_NOTHROW(train(trainer::BasicTrainerConfig<Momentum>(), 0.1, all(1.0)));
  CHECK_THROWS_WITH(train(trainer::TrainerConfig(), 0.1,
                          {{.name = "nobody", .has = [](const model::Parameter&) { return false; }, .rate = 2.0}}),
                    Contains("[rlalgo.optim.10]") && Contains("nobody"));
}

TEST_CASE("weights of another shape are refused before any is taken") {
  const Folder folder;
  Run run({.micro_batch_size = 24, .num_generations = 8}, 1, folder.path);
  const auto bytes_of = [&] { return run.bandit->logits.detach().clone(); };
  const at::Tensor before = bytes_of();
  const auto save = [&](const std::string& name, std::int64_t arms) {
    model::write_safetensors(folder.path / "model.safetensors", {{name, at::ones({arms}, at::kDouble)}});
  };
  using Catch::Matchers::Contains;
  save("logits", 1);  // would be spread over all arms
  CHECK_THROWS_WITH(run.trainer->load_weights(folder.path), Contains("[rlalgo.trainer.25]"));
  save("weights", 4);
  CHECK_THROWS_WITH(run.trainer->load_weights(folder.path), Contains("[rlalgo.trainer.21]"));
  CHECK(before.equal(bytes_of()));
  save("logits", 4);
  run.trainer->load_weights(folder.path);
  CHECK(bytes_of().equal(at::ones({4}, at::kDouble)));
  CHECK(run.trainer->version() == 0);
}

TEST_CASE("the update does not depend on the split into micro-batches") {
  const Folder folder;
  std::vector<at::Tensor> logits;
  for (const std::int64_t parts : {1, 2, 3, 8}) {
    Run run({.micro_batch_size = 24 / parts,
             .gradient_accumulation_steps = parts,
             .steps_per_generation = parts,
             .num_generations = 8},
            1, folder.path / std::to_string(parts));
    const run::StepResult result = run.trainer->step(0);
    CHECK(result.metrics.value("ratio") == 1.0);
    logits.push_back(run.bandit->logits.detach().clone());
  }
  for (const at::Tensor& other : logits) CHECK((other - logits[0]).abs().max().item<double>() < 1e-12);
  CHECK(logits[0].abs().max().item<double>() > 1e-3);
}

TEST_CASE("old log-probs are those of the weights that generated") {
  const Folder folder;
  SECTION("several iterations over one generation: remembered from the first pass") {
    Run run({.micro_batch_size = 24, .num_iterations = 2, .num_generations = 8}, 2, folder.path);
    CHECK(run.trainer->step(0).metrics.value("ratio") == 1.0);
    CHECK(run.trainer->step(1).metrics.value("ratio") != 1.0);
    CHECK(run.trainer->step(2).metrics.value("ratio") == 1.0);
  }
  SECTION("a generation for two optimizer steps: rows of the second are scored ahead") {
    Run run({.micro_batch_size = 12, .steps_per_generation = 2, .num_generations = 8}, 2, folder.path);
    CHECK(run.trainer->step(0).metrics.value("ratio") == 1.0);
    CHECK(run.trainer->step(1).metrics.value("ratio") != 1.0);
  }
}

TEST_CASE("a resumed run makes the bytes of one that was never stopped") {
  const Folder folder;
  const sampler::Geometry geometry{
      .micro_batch_size = 12, .steps_per_generation = 2, .num_iterations = 2, .num_generations = 8};
  Run whole(geometry, 6, folder.path / "whole");
  whole.trainer->run();
  for (const std::int64_t stop : {1, 2, 3, 5}) {
    const fs::path part = folder.path / ("part" + std::to_string(stop));
    Run first(geometry, stop, part);
    first.trainer->run();
    Run second(geometry, 6, part, part / ("checkpoint-" + std::to_string(stop)));
    second.trainer->run();
    CHECK(bytes(part / "model.safetensors") == bytes(folder.path / "whole" / "model.safetensors"));
    CHECK(bytes(part / "checkpoint-6" / "optimizer.safetensors") ==
          bytes(folder.path / "whole" / "checkpoint-6" / "optimizer.safetensors"));
  }
}

TEST_CASE("a loss that is not finite stops the run before the weights are touched") {
  const Folder folder;
  Run run({.micro_batch_size = 24, .num_generations = 8}, 2, folder.path);
  {
    const at::NoGradGuard guard;
    run.bandit->logits.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  CHECK_THROWS_WITH(run.trainer->step(0), Catch::Contains("[rlalgo.run.9]") && Catch::Contains("not finite"));
}

TEST_CASE("rows of advantage 0 can be left out without a change of the update, even when there are no others") {
  const Folder folder;
  const sampler::Geometry geometry{
      .micro_batch_size = 8, .gradient_accumulation_steps = 3, .steps_per_generation = 3, .num_generations = 8};
  Run whole(geometry, 3, folder.path / "whole", std::nullopt, 0.1, true, false);
  Run part(geometry, 3, folder.path / "part", std::nullopt, 0.1, true, true);
  for (std::int64_t step = 0; step < 3; ++step) {
    const run::StepResult all = whole.trainer->step(step), left = part.trainer->step(step);
    CHECK(left.metrics.value("skipped_zero_adv_rows") == Approx(2.0 / 3.0));
    CHECK(left.loss == all.loss);
    CHECK(left.grad_norm == all.grad_norm);
    CHECK(left.tokens == all.tokens);
    CHECK(part.bandit->logits.equal(whole.bandit->logits));
  }
  CHECK(whole.bandit->logits.abs().max().item<double>() > 1e-3);

  const sampler::Geometry one{.micro_batch_size = 8, .num_generations = 8};  // some steps have an idle group only
  Run without(one, 6, folder.path / "without", std::nullopt, 0.1, true, false);
  Run with(one, 6, folder.path / "with", std::nullopt, 0.1, true, true);
  for (std::int64_t step = 0; step < 6; ++step) {
    without.trainer->step(step);
    with.trainer->step(step);
    CHECK(with.bandit->logits.equal(without.bandit->logits));
  }
}

TEST_CASE("the last pass of a step is announced, and no other one") {
  const Folder folder;
  const sampler::Geometry geometry{
      .micro_batch_size = 8, .gradient_accumulation_steps = 3, .steps_per_generation = 3, .num_generations = 8};
  for (const bool skip : {false, true}) {  // two of three micro-batches have no rows then
    Run run(geometry, 3, folder.path / (skip ? "part" : "whole"), std::nullopt, 0.1, true, skip);
    std::vector<int> expected;
    for (std::int64_t step = 0; step < 3; ++step) {
      run.trainer->step(step);
      expected.push_back(run.bandit->passes - 1);
    }
    CHECK(run.bandit->passes == (skip ? 3 : 9));
    CHECK(run.placement->before == expected);
  }
}
