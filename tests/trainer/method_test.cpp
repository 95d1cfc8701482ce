#include <rlalgo/trainer/method.hpp>

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/index_select.h>
#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/trainer/online.hpp>

using namespace rlalgo;

namespace {

// Σ A·x·scale / tokens, negated.
struct Scaled {
  struct Config {
    double scale = 1.0;
  };
  static constexpr loss::Needs needs{};
  static constexpr loss::RowKind rows = loss::RowKind::samples;
  Config config{};

  loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const {
    const at::Tensor advantage = at::index_select(s.advantage, 0, s.row);
    return {(s.log_prob * advantage * s.mask).sum() * (-config.scale / counts.tokens), {}};
  }
};

// Settings are those of the loss.
struct Plain {
  using Loss = Scaled;
  using Estimator = advantage::LeaveOneOut;
  using Aggregation = aggregation::SumThenNormalize;
};

// Settings of its own, a run of its own, and parts that follow what is sampled.
struct Own : Plain {
  struct Config {
    double half = 1.0;
  };
  static constexpr trainer::MethodHooks hooks{.run = true};
  template <class O>
  struct Run : trainer::BasicOnlineConfig<O> {
    Run() { this->rollouts.sampling.max_new_tokens = 2; }
  };
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c,
                                                                  const sampler::RolloutsConfig& sampling) {
    return {Scaled{{.scale = c.half * static_cast<double>(sampling.sampling.max_new_tokens)}}, {}, {}};
  }
};

// A loss without settings.
struct Unsettled {
  struct Loss {
    static constexpr loss::Needs needs{};
    static constexpr loss::RowKind rows = loss::RowKind::samples;
    loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const { return Scaled()(s, counts); }
  };
  using Estimator = advantage::LeaveOneOut;
  using Aggregation = aggregation::SumThenNormalize;
};

template <class M, class O>
void settle(TrainConfig<M, O>& config, const std::filesystem::path& directory, std::int64_t steps) {
  config.run.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 8};
  config.run.trainer.max_grad_norm = 0;
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.run.trainer.loop.max_steps = steps;
  config.run.trainer.loop.output_dir = directory;
}

template <class Bandit, class Pulls>
trainer::OnlineInputs<Pulls> inputs(const std::shared_ptr<Bandit>& bandit, Pulls& pulls) {
  return {.policy = bandit,
          .generator = pulls,
          .prompts = {{.row = 0, .ids = {0}, .prompt = "p", .columns = {}}},
          .rewards = {[](const reward::Sample& s) { return static_cast<double>(s.ids[0]); }}};
}

template <class M, class O = optim::AdamW>
double norm(TrainConfig<M, O> config = {}) {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
  rlalgo::support::BanditPulls pulls{*bandit};
  settle(config, "unused", 1);
  return make_trainer<M>(std::move(config), inputs(bandit, pulls)).step(0).grad_norm;
}

}  // namespace

TEST_CASE("a method's settings are its own, else those of its loss, else none") {
  STATIC_REQUIRE(std::same_as<decltype(TrainConfig<Plain>{}.method), Scaled::Config>);
  STATIC_REQUIRE(std::same_as<decltype(TrainConfig<Own>{}.method), Own::Config>);
  STATIC_REQUIRE(std::is_empty_v<decltype(TrainConfig<Unsettled>{}.method)>);
  CHECK(TrainConfig<Own>{}.run.rollouts.sampling.max_new_tokens == 2);
  const double plain = norm<Plain>();
  CHECK(plain > 0.01);
  CHECK(norm<Unsettled>() == plain);
  CHECK(norm<Plain>({.method = {.scale = 3.0}}) == Approx(3 * plain).epsilon(1e-12));
  CHECK(norm<Own>({.method = {.half = 0.5}}) == Approx(plain).epsilon(1e-12));
  CHECK(norm<Own>({.method = {.half = 2.0}}) == Approx(4 * plain).epsilon(1e-12));
}

TEST_CASE("a method is trained with any optimizer, which is part of the trainer's type") {
  STATIC_REQUIRE(
      std::same_as<decltype(TrainConfig<Plain, optim::AdamW8bit>{}.run), trainer::BasicOnlineConfig<optim::AdamW8bit>>);
  CHECK(norm<Plain, optim::AdamW8bit>() == norm<Plain>());
}

TEST_CASE("train carries a method out to its last step") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
  rlalgo::support::BanditPulls pulls{*bandit};
  TrainConfig<Plain> config;
  settle(config, scratch.path(), 30);
  const run::Outcome outcome = train<Plain>(config, inputs(bandit, pulls));
  CHECK(outcome.step == 30);
  CHECK(outcome.exit_code() == 0);
  CHECK(at::softmax(bandit->parameters().front().value.detach(), 0)[3].item<double>() > 0.5);
  CHECK(std::filesystem::exists(scratch.path() / "metrics.jsonl"));
}
