// The snippets of docs/extending.md, compiled and run (scripts/check_architecture.py compares the texts).
#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/rlalgo.hpp>

namespace {

using namespace rlalgo;

// [model]
struct Bandit : model::Policy {
  at::Tensor logits = at::zeros({5}).requires_grad_(true);  // one per machine

  model::Scores score(const model::TokenTree& tree, const model::ScoreOptions& options) override {
    const at::Tensor log_probs = at::log_softmax(logits / options.temperature, 0);  // [5]
    const at::Tensor pulled = at::tensor(tree.target);                              // [N]
    const at::Tensor entropy = -(log_probs.exp() * log_probs).sum().detach();
    return {log_probs.index_select(0, pulled), entropy.expand({pulled.size(0)})};
  }
  std::vector<model::Parameter> parameters() override { return {{"logits", logits}}; }
};

// [loss]
struct PlainReinforce {
  static constexpr loss::Needs needs{};                          // no old, no reference log-probs
  static constexpr loss::RowKind rows = loss::RowKind::samples;  // completions with one advantage each

  loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const {
    const at::Tensor advantage = at::index_select(s.advantage, 0, s.row);  // [N]
    loss::Result result;
    result.value = (s.log_prob * advantage * s.mask).sum() / -counts.tokens;
    return result;
  }
};

// [estimator]
struct Ranked {
  struct Config {};

  advantage::Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    advantage::Estimate out{std::vector<double>(rewards.size(), 0.0), std::vector<double>(rewards.size(), 1.0)};
    for (const core::Span group : groups)
      for (std::size_t i = group.begin; i < group.end; ++i)
        for (std::size_t j = group.begin; j < group.end; ++j)  // NaN: beats nobody, nobody beats it
          out.advantage[i] +=
              static_cast<double>(rewards[i] > rewards[j]) - static_cast<double>(rewards[i] < rewards[j]);
    for (double& advantage : out.advantage) advantage /= static_cast<double>(rewards.size());
    return out;
  }
};

// [generator]
struct CopiedPulls {
  static constexpr inference::WeightSource weights = inference::WeightSource::snapshot;
  std::vector<double> probabilities;  // [5], of the weights last handed over

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& /*sampling*/,
                                                      inference::DrawKey key) {
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests) {
      out.emplace_back();
      for (std::int64_t j = 0; j < request.count; ++j) {
        const auto index = request.first_index + static_cast<std::uint64_t>(j);
        double u = core::uniform({key.seed, core::Stream::sampling}, key.step, index);
        std::int32_t machine = 0;
        while (machine < 4 && (u -= probabilities[static_cast<std::size_t>(machine)]) >= 0) ++machine;
        const double p = probabilities[static_cast<std::size_t>(machine)];
        out.back().push_back({{.ids = {machine}, .log_probs = {static_cast<float>(std::log(p))}}});
      }
    }
    return out;
  }
};

// [sync]
struct CopyAtPublish {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::snapshot; }
  std::shared_ptr<Bandit> policy;
  CopiedPulls* generator = nullptr;
  std::shared_ptr<std::int64_t> version = std::make_shared<std::int64_t>(-1);

  sync::Published publish(std::int64_t wanted) {
    if (wanted == *version) return {.version = wanted};
    const at::Tensor p = at::softmax(policy->logits.detach().to(at::kDouble), 0).contiguous();
    generator->probabilities.assign(p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel());
    *version = wanted;
    return {.version = wanted, .status = sync::Published::Status::copied, .bytes = 40};
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [version = version] { return *version; };
  }
};

// [sampler]
class Demonstrations {
 public:
  using Rows = sampler::RolloutRows;

  explicit Demonstrations(std::vector<data::TokenId> pulled) {
    for (const data::TokenId machine : pulled) {
      shown_->emplace_back();
      shown_->back().first().prompt_ids = {0};
      shown_->back().first().completion_ids = {machine};
    }
  }

  // The same episodes at every step, in one micro-batch.
  sampler::Batch<data::Episode> next(std::int64_t /*step*/) {
    sampler::Batch<data::Episode> batch;
    batch.parts.emplace_back();
    for (data::Episode& episode : *shown_) batch.parts.back().push_back(&episode);
    batch.owners.push_back(shown_);
    return batch;
  }
  [[nodiscard]] data::Json state() const { return data::Json::object(); }  // next() depends on the step alone
  void restore(const data::Json& /*state*/) {}

 private:
  std::shared_ptr<std::vector<data::Episode>> shown_ = std::make_shared<std::vector<data::Episode>>();
};

struct Likelihood {
  static constexpr loss::Needs needs{};
  static constexpr loss::RowKind rows = loss::RowKind::samples;

  loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const {
    loss::Result result;
    result.value = (s.log_prob * s.mask).sum() / -counts.tokens;
    return result;
  }
};

// [optimizer]
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
      const at::Tensor& gradient = parameters_[i].value.grad();
      if (!gradient.defined()) continue;  // left alone
      velocity_[i].mul_(config_.decay).add_(gradient);
      parameters_[i].value.sub_(velocity_[i], rate);
    }
  }
  void zero_grad() {
    for (model::Parameter& p : parameters_) p.value.mutable_grad() = at::Tensor();
  }
  static constexpr optim::Hooks hooks{.set_momentum = true};  // for one_cycle; an optimizer without it is one, too
  void set_momentum(double decay) { config_.decay = decay; }

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state() const {
    std::vector<std::pair<std::string, at::Tensor>> out;
    for (std::size_t i = 0; i < parameters_.size(); ++i) out.emplace_back(parameters_[i].name + ".v", velocity_[i]);
    return out;
  }
  void load_state(const std::map<std::string, at::Tensor>& state) {
    std::vector<at::Tensor> found;
    for (const auto& [name, velocity] : this->state()) found.push_back(state.at(name));  // all of them, or none
    const c10::AutoGradMode no_gradient(false);
    for (std::size_t i = 0; i < found.size(); ++i) velocity_[i].copy_(found[i]);
  }

 private:
  std::vector<model::Parameter> parameters_;
  Config config_;
  std::vector<at::Tensor> velocity_;  // as the parameters
};
// [method]
struct RankedReinforce {
  using Loss = PlainReinforce;
  using Estimator = Ranked;
  using Aggregation = aggregation::SumThenNormalize;
};

// [end]

double probability(const Bandit& bandit, std::int64_t machine) {
  return at::softmax(bandit.logits.detach(), 0)[machine].item<double>();
}

trainer::TrainerConfig steps(std::int64_t count, const support::ScratchDirectory& scratch) {
  trainer::TrainerConfig config;
  config.schedule = {.name = "constant", .learning_rate = 0.1};
  config.loop.max_steps = count;
  config.loop.output_dir = scratch.path() / "out";
  config.loop.progress = false;
  return config;
}

}  // namespace

TEST_CASE("docs/extending.md: a model, a loss, an estimator, a reward, a generator and its sync, together") {
  const support::ScratchDirectory scratch;
  const trainer::TrainerConfig settings = steps(40, scratch);
  // [reward]
  // Machine i pays i/4.
  const auto payout = [](const reward::Sample& s) { return s.ids[0] / 4.0; };
  // [online]
  const auto bandit = std::make_shared<Bandit>();
  CopiedPulls pulls;
  TrainConfig<RankedReinforce> config{.method = {}, .run = {.trainer = settings}};
  config.run.rollouts.geometry = {.micro_batch_size = 32, .num_generations = 32};
  const trainer::OnlineInputs<CopiedPulls, CopyAtPublish> inputs{
      .policy = bandit,
      .generator = pulls,
      .prompts = {{.row = 0, .ids = {0}, .prompt = "", .columns = {}}},
      .rewards = {{"payout", payout}},
      .sync = {.policy = bandit, .generator = &pulls}};
  const run::Outcome outcome = train<RankedReinforce>(config, inputs);
  // [end]
  CHECK(outcome.step == 40);
  CHECK(probability(*bandit, 4) > 0.6);
  CHECK(pulls.probabilities.size() == 5);
}

TEST_CASE("docs/extending.md: a sampler without rewards") {
  const support::ScratchDirectory scratch;
  const trainer::TrainerConfig settings = steps(40, scratch);
  // [offline]
  const auto bandit = std::make_shared<Bandit>();
  trainer::Trainer<Likelihood, advantage::None, Demonstrations, aggregation::None, sync::NoSync> trainer(
      settings, {.policy = bandit,
                 .loss = {},
                 .estimator = {},
                 .sampler = std::make_shared<Demonstrations>(std::vector<data::TokenId>{1, 1, 3, 1}),
                 .aggregation = {},
                 .sync = {}});
  trainer.run();  // learns to pull machine 1 three times out of four
  // [end]
  CHECK(probability(*bandit, 1) == Approx(0.75).margin(0.1));
  CHECK(probability(*bandit, 3) == Approx(0.25).margin(0.1));
}

TEST_CASE("docs/extending.md: a rank is how many it beats") {
  const Ranked ranked;
  const std::vector<double> rewards = {3.0, 1.0, 2.0, NAN};
  const auto estimate = ranked(rewards, core::Groups::uniform(4, 4));
  CHECK(estimate.advantage == std::vector<double>{0.5, -0.5, 0.0, 0.0});
}

TEST_CASE("docs/extending.md: an optimizer") {
  const support::ScratchDirectory scratch;
  trainer::TrainerConfig settings = steps(40, scratch);
  const auto run = [&] {
    // [optimizer in a run]
    trainer::BasicTrainerConfig<Momentum> config;
    config.optimizer.decay = 0.5;
    config.schedule = {.name = "constant", .learning_rate = 0.5};
    config.loop = settings.loop;
    const auto bandit = std::make_shared<Bandit>();
    using OwnTrainer =
        trainer::Trainer<Likelihood, advantage::None, Demonstrations, aggregation::None, sync::NoSync, Momentum>;
    OwnTrainer trainer(config, {.policy = bandit,
                                .loss = {},
                                .estimator = {},
                                .sampler = std::make_shared<Demonstrations>(std::vector<data::TokenId>{1, 1, 3, 1}),
                                .aggregation = {},
                                .sync = {}});
    trainer.run();
    // [end]
    return bandit->logits.detach().clone();
  };
  static_assert(optim::Optimizer<Momentum> && optim::HasMomentum<Momentum>);
  settings.loop.save = run::Cadence::steps(20);
  const at::Tensor whole = run();
  CHECK(at::softmax(whole, 0)[1].item<double>() == Approx(0.75).margin(0.1));
  settings.loop.resume_from_checkpoint = scratch.path() / "out/checkpoint-20";
  settings.loop.output_dir = scratch.path() / "again";
  CHECK(whole.equal(run()));  // the velocity of step 20 came back
}
