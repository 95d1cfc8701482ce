#include <cmath>
#include <fstream>

#include <ATen/ops/allclose.h>
#include <c10/core/GradMode.h>
#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/shards.hpp>
#include <support/thread_world.hpp>

#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/prospect.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/tensor/masked.hpp>
#include <rlalgo/trainer/offline.hpp>
#include <rlalgo/trainer/sharded_placement.hpp>

using namespace rlalgo;

namespace {

using Dpo = loss::DirectPreference<loss::Sigmoid>;

std::shared_ptr<data::AnswerSet> answers(int examples, std::size_t unit) {
  auto set = std::make_shared<data::AnswerSet>(unit);
  for (int e = 0; e < examples; ++e) {
    const std::vector<data::TokenId> prompt = {0}, good(static_cast<std::size_t>(1 + e % 3), 1 + e % 2),
                                     bad(static_cast<std::size_t>(1 + e % 2), 3);
    if (unit == 2) {
      set->append(e, true, prompt, good);
      set->append(e, false, prompt, bad);
    } else {
      set->append(e, e % 3 != 0, prompt, e % 3 != 0 ? good : bad);
    }
  }
  return set;
}

struct Run {
  std::shared_ptr<rlalgo::support::Bandit> policy = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
  std::shared_ptr<rlalgo::support::Bandit> reference = std::make_shared<rlalgo::support::Bandit>(4, at::kDouble);
  trainer::OfflineConfig config;

  explicit Run(std::int64_t micro = 6, std::int64_t accumulation = 1) {
    const c10::AutoGradMode no_gradient(false);
    policy->logits.copy_(at::tensor({0.3, -0.2, 0.5, 0.1}, at::kDouble));
    config.sampling = {.micro_batch_size = micro, .gradient_accumulation_steps = accumulation, .shuffle = false};
    config.trainer.schedule = {.name = "constant", .learning_rate = 0.05};
    config.trainer.max_grad_norm = 0;
  }
  template <class L>
  auto trainer(L loss, std::size_t unit, int examples = 6) {
    return trainer::make_offline(config, loss,
                                 {.policy = policy, .answers = answers(examples, unit), .reference = reference});
  }
};

}  // namespace

TEST_CASE("a step of DPO has the loss computed by hand") {
  Run run;
  auto trainer = run.trainer(Dpo({.beta = 0.5}), 2);
  const auto result = trainer.step(0);
  const double z = std::log(std::exp(0.3) + std::exp(-0.2) + std::exp(0.5) + std::exp(0.1));
  const auto ratio = [&](double logit) { return logit - z + std::log(4.0); };
  double expected = 0;
  for (int e = 0; e < 6; ++e) {
    const double chosen = (1 + e % 3) * ratio(e % 2 == 0 ? -0.2 : 0.5), rejected = (1 + e % 2) * ratio(0.1);
    expected += std::log1p(std::exp(-0.5 * (chosen - rejected))) / 6;
  }
  CHECK(result.loss == Approx(expected).epsilon(1e-6));
  CHECK(result.epoch == 1.0);
  CHECK(result.metrics.value("num_tokens") == static_cast<double>(result.tokens));
}

TEST_CASE("the split into micro-batches changes neither loss nor weights: DPO and KTO") {
  const auto after = [](auto loss, std::size_t unit, std::int64_t micro, std::int64_t accumulation) {
    Run run(micro, accumulation);
    auto trainer = run.trainer(loss, unit);
    double total = 0;
    for (std::int64_t s = 0; s < 3; ++s) total += trainer.step(s).loss;
    return std::pair(total, run.policy->logits.detach().clone());
  };
  const auto check = [&](auto loss, std::size_t unit) {
    const auto whole = after(loss, unit, 6, 1);
    for (const std::int64_t micro : {1, 2, 3}) {
      const auto split = after(loss, unit, micro, 6 / micro);
      CHECK(split.first == Approx(whole.first).epsilon(1e-12));
      CHECK(at::allclose(split.second, whole.second, 1e-10, 1e-12));
    }
  };
  check(Dpo({.beta = 0.5}), 2);
  check(loss::Prospect<>({.beta = 0.5, .undesirable_weight = 1.3}), 1);
}

TEST_CASE("KTO reports the divergence of mismatched completions") {
  Run run;
  auto trainer = run.trainer(loss::Prospect<>({.beta = 0.5}), 1);
  double kl = 0;
  for (std::int64_t s = 0; s < 4; ++s) kl = trainer.step(s).metrics.value("kl");
  CHECK(kl > 0);
}

TEST_CASE("a loss that compares needs a reference, or rows that bring it") {
  Run run;
  run.reference = nullptr;
  CHECK_THROWS_WITH(run.trainer(Dpo({}), 2), Catch::StartsWith("[rlalgo.trainer.20]"));
  const auto set = answers(6, 2);
  set->set_reference(std::vector<double>(12, -1.0));
  auto trainer = trainer::make_offline(run.config, Dpo({}), {.policy = run.policy, .answers = set});
  CHECK(std::isfinite(trainer.step(0).loss));
}

TEST_CASE("evaluation has the metrics of the whole split, and training goes on as without it") {
  const rlalgo::support::ScratchDirectory scratch;
  Run run(2, 1), plain(2, 1);
  for (Run* r : {&run, &plain}) {
    r->config.trainer.loop.max_steps = 3;
    r->config.trainer.loop.progress = r->config.trainer.loop.report = r->config.trainer.loop.tensorboard = false;
    r->config.trainer.loop.save = run::Cadence::never();
  }
  run.config.trainer.loop.output_dir = scratch.path() / "a";
  plain.config.trainer.loop.output_dir = scratch.path() / "b";
  run.config.trainer.loop.eval = run::Cadence::steps(1);
  auto with = trainer::make_offline(
      run.config, Dpo({.beta = 0.5}),
      {.policy = run.policy, .answers = answers(6, 2), .reference = run.reference, .evaluation = answers(5, 2)});
  auto without =
      trainer::make_offline(plain.config, Dpo({.beta = 0.5}),
                            {.policy = plain.policy, .answers = answers(6, 2), .reference = plain.reference});
  CHECK(with.run().step == 3);
  CHECK(without.run().step == 3);
  CHECK(at::equal(run.policy->logits, plain.policy->logits));
}

TEST_CASE("a loss that is not finite names its rows and saves them; the weights stay") {
  const rlalgo::support::ScratchDirectory scratch;
  Run run(3, 2);
  run.config.trainer.loop.output_dir = scratch.path();
  const auto set = answers(6, 2);
  std::vector<double> reference(12, -1.0);
  reference[2 * 4] = INFINITY;  // the chosen answer is infinitely less likely than it was
  set->set_reference(reference);
  auto trainer = trainer::make_offline(run.config, Dpo({}), {.policy = run.policy, .answers = set});
  const at::Tensor before = run.policy->logits.detach().clone();
  const std::string error = rlalgo::support::raised_by([&] { (void)trainer.step(0); });
  CHECK(rlalgo::support::lacks(
            error, {"trainer.31: ", "2 of 6 answers, dataset rows 4,", "step 1", "offending_rows-step-1.jsonl"}) == "");
  CHECK(at::equal(run.policy->logits, before));
  std::ifstream in(scratch.path() / "offending_rows-step-1.jsonl");
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) CHECK(data::Json::parse(line)["row"] == 4);
  CHECK(lines == 2);
}

namespace {

// Finite everywhere; its gradient is infinite for rows of three tokens.
struct Cusp {
  struct Config {};
  static constexpr loss::Needs needs{};
  static constexpr loss::RowKind rows = loss::RowKind::pairs;
  loss::Result operator()(const loss::Scored& s, const loss::Counts&) const {
    const at::Tensor zero = s.log_prob.sub(s.log_prob.detach());
    const at::Tensor long_row = tensor::spread(s.row_length, s.row).eq(3);
    return {.value = tensor::where(long_row, zero, s.log_prob.neg()).sqrt().sum(), .metrics = {}};
  }
};

}  // namespace

TEST_CASE("a gradient that is not finite names its rows; the weights stay") {
  const rlalgo::support::ScratchDirectory scratch;
  Run run(2, 3);
  run.config.trainer.loop.output_dir = scratch.path();
  auto trainer = trainer::make_offline(run.config, Cusp(), {.policy = run.policy, .answers = answers(6, 2)});
  const at::Tensor before = run.policy->logits.detach().clone();
  const std::string error = rlalgo::support::raised_by([&] { (void)trainer.step(0); });
  CHECK(rlalgo::support::lacks(error, {"trainer.31: ", "the gradient is not finite",
                                       "4 of 12 answers, dataset rows 2, 5,", "offending_rows-step-1.jsonl"}) == "");
  CHECK(at::equal(run.policy->logits, before));
}

TEST_CASE("pairs.json holds the extremes of the last evaluation, or of training without one") {
  for (const bool evaluates : {true, false}) {
    const rlalgo::support::ScratchDirectory scratch;
    Run run(2, 1);
    run::LoopConfig& loop = run.config.trainer.loop;
    loop.max_steps = 3;
    loop.progress = loop.report = loop.tensorboard = false;
    loop.save = run::Cadence::never();
    loop.output_dir = scratch.path();
    if (evaluates) loop.eval = run::Cadence::steps(2);
    trainer::OfflineInputs inputs{.policy = run.policy, .answers = answers(6, 2), .reference = run.reference};
    run.config.sampling.shuffle = true;  // not the evaluation
    if (evaluates) inputs.evaluation = answers(12, 2);
    (void)trainer::make_offline(run.config, Dpo({.beta = 0.5}), inputs).run();
    std::ifstream in(scratch.path() / "pairs.json");
    const data::Json pairs = data::Json::parse(in);
    CHECK(pairs["split"] == (evaluates ? "evaluation" : "train"));
    CHECK(pairs["pairs"] == (evaluates ? 12 : 2));
    if (evaluates) {
      CHECK(pairs["most"][0]["margin"] == pairs["most"][1]["margin"]);
      CHECK(pairs["most"][0]["row"] < pairs["most"][1]["row"]);
    }
    CHECK(pairs["step"] == 3);  // a run ends with an evaluation
    CHECK(pairs["most"][0]["margin"] > pairs["least"][0]["margin"]);
  }
}

TEST_CASE("pairs.json of a window of steps that a resume cuts in two is that of the whole window") {
  for (const std::int64_t logging : {4, 3}) {
    const rlalgo::support::ScratchDirectory scratch;
    const auto pairs = [&](const std::string& name, const std::string& checkpoint) {
      Run run(2, 1);
      run::LoopConfig& loop = run.config.trainer.loop;
      loop.max_steps = 4;
      loop.logging_steps = logging;
      loop.progress = loop.report = loop.tensorboard = false;
      loop.save = run::Cadence::steps(1);
      loop.output_dir = scratch.path() / name;
      if (!checkpoint.empty()) loop.resume_from_checkpoint = scratch.path() / "whole" / checkpoint;
      (void)trainer::make_offline(run.config, Dpo({.beta = 0.5}),
                                  {.policy = run.policy, .answers = answers(6, 2), .reference = run.reference})
          .run();
      std::ifstream in(scratch.path() / name / "pairs.json");
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const std::string whole = pairs("whole", "");
    CHECK(data::Json::parse(whole)["pairs"] == (logging == 4 ? 6 : 2));  // steps 2 to 4, or the last
    for (const char* checkpoint : {"checkpoint-2", "checkpoint-3", "checkpoint-4"})
      CHECK(pairs("resumed", checkpoint) == whole);
  }
}

namespace {

// Losses, gradient norms, metrics and weights of a decoder after three steps in float64, and an evaluation.
template <class L>
std::vector<double> trained_decoder(L loss, std::size_t unit, const std::shared_ptr<distributed::World>& world,
                                    const rlalgo::support::Layout& layout = {}) {
  const auto decoder = std::shared_ptr<model::Decoder>(
      model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("llama"), "test"), 3, at::kDouble));
  const auto shards =
      layout.shards > 1 ? rlalgo::support::sharded(*decoder, *world, layout.config, layout.shards) : nullptr;
  const bool all = shards != nullptr && layout.config.stage == distributed::ShardStage::weights;
  trainer::OfflineConfig config;
  config.sampling = {.micro_batch_size = 2, .gradient_accumulation_steps = 2};
  config.trainer.schedule = {.name = "constant", .learning_rate = 0.01};
  config.trainer.optimizer.epsilon = 1e-4;
  auto trainer = trainer::make_offline(
      config, loss,
      {.policy = decoder,
       .answers = answers(12, unit),
       .reference = all ? shards->frozen_copy(*decoder) : decoder->reference(),
       .evaluation = answers(5, unit),
       .world = world,
       .placement = shards != nullptr ? std::make_shared<trainer::ShardedPlacement>(shards, world) : nullptr});
  std::vector<double> out;
  const auto keep = [&](const core::Metrics& metrics) {
    for (const auto& [name, value] : metrics.values()) out.push_back(value);
  };
  for (std::int64_t step = 0; step < 3; ++step) {
    const run::StepResult result = trainer.step(step);
    out.insert(out.end(), {result.loss, result.grad_norm});
    keep(result.metrics);
  }
  keep(trainer.evaluate());
  if (shards != nullptr)
    for (const auto& [name, sum] : rlalgo::support::sums_of_squares(*shards)) out.push_back(sum);
  else
    for (const auto& p : decoder->parameters()) out.push_back(p.value.square().sum().template item<double>());
  return out;
}

}  // namespace

TEST_CASE("ranks in context groups train a decoder on answers as one rank does, in float64") {
  const auto check = [](auto loss, std::size_t unit) {
    const std::vector<double> one = trained_decoder(loss, unit, std::make_shared<distributed::World>());
    for (const auto& [ranks, size] : {std::pair{2, 2}, {4, 2}, {3, 3}})
      rlalgo::support::on_ranks(ranks, [&, size = size](const std::shared_ptr<distributed::World>& world) {
        world->set_context_size(size);
        const std::vector<double> many = trained_decoder(loss, unit, world);
        RANK_CHECK(many.size() == one.size());
        for (std::size_t i = 0; i < one.size(); ++i)
          RANK_CHECK(std::abs(many[i] - one[i]) <= 1e-10 * std::max(1.0, std::abs(one[i])));
      });
  };
  check(Dpo({.beta = 0.5}), 2);
  check(loss::Prospect<>({}), 1);
}

TEST_CASE("ranks with shards of the weights train a decoder on answers as one rank does, in float64, in every layout") {
  const auto check = [](auto loss, std::size_t unit) {
    const std::vector<double> one = trained_decoder(loss, unit, std::make_shared<distributed::World>());
    for (const rlalgo::support::Layout& layout : rlalgo::support::layouts())
      rlalgo::support::with_ranks(layout.ranks, [&](const std::shared_ptr<distributed::World>& world) {
        world->set_context_size(layout.context);
        const std::vector<double> many = trained_decoder(loss, unit, world, layout);
        RANK_CHECK(many.size() == one.size());
        for (std::size_t i = 0; i < one.size(); ++i)
          RANK_CHECK(std::abs(many[i] - one[i]) <= 1e-10 * std::max(1.0, std::abs(one[i])));
      });
  };
  check(Dpo({.beta = 0.5}), 2);
  check(loss::Prospect<>({}), 1);
}
