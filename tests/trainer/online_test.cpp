#include <support/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/loss/any_loss.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/fixed_length.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/trainer/online.hpp>
#include <rlalgo/trainer/sharded_placement.hpp>
#include <support/bandit.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/shards.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {

// Remembers the seeds of the draws, one letter a call.
struct SeededPulls : rlalgo::support::BanditPulls {
  std::uint64_t seed;
  std::string seen = {};

  auto generate(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                inference::DrawKey key) {
    seen += key.seed == seed ? 't' : key.seed == ~seed ? 'e' : '?';
    return BanditPulls::generate(requests, sampling, key);
  }
};

}  // namespace

TEST_CASE("an online run logs, evaluates on its held-out prompts and counts epochs") {
  std::string name = (fs::temp_directory_path() / "rlalgo_online_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4);
  SeededPulls pulls{{*bandit, 2}, 7};
  const auto reward = reward::from("arm", [](const reward::Sample& s) { return s.ids[0] / 3.0; });
  const std::vector<data::TokenizedPrompt> prompts(6, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}});
  std::string told;  // of new weights; of training that begins

  trainer::OnlineConfig config;
  config.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 4};
  config.rollouts.seed = 7;
  config.evaluation_generations = 2;
  config.evaluation_batch_size = 3;
  config.trainer.schedule = {.name = "constant", .learning_rate = 0.5};
  config.trainer.loop.max_steps = 6;
  config.trainer.loop.output_dir = folder;
  config.trainer.loop.progress = false;
  config.trainer.loop.eval = run::Cadence::steps(3);
  config.trainer.loop.eval_first = true;
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
  auto trainer = trainer::make_online(
      config, Loss({}), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
      trainer::OnlineInputs<SeededPulls>{.policy = bandit,
                                         .generator = pulls,
                                         .prompts = prompts,
                                         .rewards = {{reward, 2.0}},
                                         .evaluation_prompts = {prompts.begin(), prompts.begin() + 3},
                                         .sync = sync::SharedWeights([&] { told += 'p'; }, [&] { told += 't'; })});
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
  CHECK(told == "ptptptptptptp");
  CHECK(pulls.seen == "etttettte");  // evaluations share no random number with training
  fs::remove_all(folder);
}

TEST_CASE("an online run has the optimizer that its settings name") {
  const auto logits = [](auto settings) {
    const auto bandit = std::make_shared<rlalgo::support::Bandit>(4);
    rlalgo::support::BanditPulls pulls{*bandit, 2};
    settings.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 4};
    settings.trainer.schedule = {.name = "constant", .learning_rate = 0.5};
    using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
    auto trainer = trainer::make_online(
        std::move(settings), Loss({}), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
        trainer::OnlineInputs<rlalgo::support::BanditPulls>{
            .policy = bandit,
            .generator = pulls,
            .prompts = std::vector<data::TokenizedPrompt>(6, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}}),
            .rewards = {{reward::from("arm", [](const reward::Sample& s) { return s.ids[0] / 3.0; })}}});
    for (std::int64_t step = 0; step < 3; ++step) (void)trainer.step(step);
    return bandit->parameters().front().value.detach().clone();
  };
  const auto whole = logits(trainer::OnlineConfig());
  trainer::BasicOnlineConfig<optim::AdamW8bit> eight;  // of four numbers, which are not quantised
  CHECK(whole.equal(logits(eight)));
  eight.trainer.optimizer.min_elements = 1;
  CHECK_FALSE(whole.equal(logits(eight)));
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

namespace {

struct SeenRow {
  data::Episode episode;
  double tokens = 0.0;
  bool is_first = false;
};

// Five steps over episodes of one to three rows, in float64: losses, gradient norms, logits. `seen`: of the first step the
// rows, with their advantages and rewards.
template <class Reduction>
std::vector<double> trained_on_episodes(std::int64_t micro_batch, std::int64_t iterations,
                                        const std::shared_ptr<distributed::World>& world,
                                        std::vector<SeenRow>* seen = nullptr) {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(5, at::kDouble);
  rlalgo::support::BanditPulls pulls{*bandit, 3, 2};
  const std::vector<data::TokenizedPrompt> prompts(12, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}});
  trainer::OnlineConfig config;
  config.rollouts.geometry = {.micro_batch_size = micro_batch,
                              .gradient_accumulation_steps = 12 / micro_batch,
                              .steps_per_generation = 12 / micro_batch,
                              .num_iterations = iterations,
                              .num_generations = 4};
  config.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.trainer.loop.max_steps = 5;
  auto trainer =
      trainer::make_online(
          config, Clipped<Reduction>({}), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
          trainer::OnlineInputs<rlalgo::support::BanditPulls>{
              .policy = bandit,
              .generator = pulls,
              .prompts = prompts,
              .rewards = {{reward::from("arm", [](const reward::Sample& s) { return s.ids[0] / 3.0; }), 1.0}},
              .on_experience =
                  [&](std::int64_t step, trainer::Experience<data::EpisodeRow>& experience) {
                    for (const data::EpisodeRow* row : experience.rows)
                      if (seen != nullptr && step == 1)
                        seen->push_back({row->episode(), static_cast<double>((*row)->completion_ids.size()),
                                         &**row == &row->episode().first()});
                  },
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
void check_episodes() {
  const auto alone = std::make_shared<distributed::World>();
  for (const std::int64_t iterations : {1, 2}) {
    const std::vector<double> one = trained_on_episodes<Reduction>(12, iterations, alone);
    CHECK(std::abs(one.back()) > 0.1);
    const auto same = [&](const std::vector<double>& other) {
      double apart = 0;
      for (std::size_t i = 0; i < one.size(); ++i) apart = std::max(apart, std::abs(one[i] - other.at(i)));
      return apart <= 1e-10;
    };
    for (const std::int64_t micro_batch : {6, 3, 2, 1})
      CHECK(same(trained_on_episodes<Reduction>(micro_batch, iterations, alone)));
    for (const int ranks : {2, 4})
      rlalgo::support::on_ranks(ranks, [&](const std::shared_ptr<distributed::World>& world) {
        RANK_CHECK(same(trained_on_episodes<Reduction>(3, iterations, world)));
      });
  }
}

}  // namespace

TEST_CASE("an episode is one sample of its group; its rows share its advantage and count as rows of the loss") {
  std::vector<SeenRow> rows;
  const auto alone = std::make_shared<distributed::World>();
  const double by_rows = trained_on_episodes<loss::SequenceMean>(12, 1, alone, &rows)[0];
  REQUIRE(rows.size() == 12 + 4 * (1 + 2));  // number i has i mod 3 further ones
  std::vector<const data::Episode*> episodes;
  double sum = 0, token_sum = 0, tokens = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SeenRow& row = rows[i];
    sum += row.episode.advantage;
    tokens += row.tokens;
    token_sum += row.episode.advantage * row.tokens;
    if (row.is_first) episodes.push_back(&row.episode);
    CHECK(row.episode.advantage == episodes.back()->advantage);
    CHECK(row.episode.rewards == episodes.back()->rewards);
  }
  REQUIRE(episodes.size() == 12);
  for (std::size_t g = 0; g < 12; g += 4) {
    double mean = 0, square = 0;
    for (std::size_t i = g; i < g + 4; ++i) mean += episodes[i]->rewards[0] / 4;
    for (std::size_t i = g; i < g + 4; ++i) square += std::pow(episodes[i]->rewards[0] - mean, 2) / 3;
    for (std::size_t i = g; i < g + 4; ++i)
      CHECK(episodes[i]->advantage == Approx((episodes[i]->rewards[0] - mean) / (std::sqrt(square) + 1e-4)));
  }
  CHECK(std::abs(sum) > 0.1);
  CHECK(by_rows == Approx(-sum / static_cast<double>(rows.size())));
  CHECK(trained_on_episodes<loss::GlobalTokenCount>(12, 1, alone)[0] == Approx(-token_sum / tokens));
}

TEST_CASE("episodes of several rows train alike in any micro-batches, and on several ranks") {
  check_episodes<loss::SequenceMean>();
  check_episodes<loss::GlobalTokenCount>();
  check_episodes<loss::FixedLength>();
}

namespace {

// Completions of 1 to 9 tokens that no model was asked for.
struct Scribbler {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey key) {
    std::vector<std::vector<data::Completion>> out;
    for (const auto& request : requests) {
      out.emplace_back();
      for (std::int64_t j = 0; j < request.count; ++j) {
        const std::uint64_t index = request.first_index + static_cast<std::uint64_t>(j);
        data::Completion completion;
        for (std::uint64_t t = 0; t < 1 + index * 5 % 9; ++t) {
          const double u = core::uniform({key.seed, core::Stream::sampling}, key.step, index * 1000 + t);
          completion.ids.push_back(3 + static_cast<std::int32_t>(u * 20));
          completion.log_probs.push_back(-3.0F);
        }
        out.back().push_back(std::move(completion));
      }
    }
    return out;
  }
};

// Losses, gradient norms, metrics and weights of a decoder after four steps in float64.
std::vector<double> trained_decoder(const std::shared_ptr<distributed::World>& world,
                                    const rlalgo::support::Layout& layout = {}) {
  const auto decoder = std::shared_ptr<model::Decoder>(
      model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("qwen3"), "test"), 3, at::kDouble));
  const auto shards =
      layout.shards > 1 ? rlalgo::support::sharded(*decoder, *world, layout.config, layout.shards) : nullptr;
  const bool all = shards != nullptr && layout.config.stage == distributed::ShardStage::weights;
  Scribbler engine;
  std::vector<data::TokenizedPrompt> prompts;
  for (int p = 0; p < 8; ++p)
    prompts.push_back({.row = p, .ids = {1, 4 + p, 9, 3, 17 - p}, .prompt = "p", .columns = {}});
  trainer::OnlineConfig config;
  config.rollouts.geometry = {.micro_batch_size = 4,
                              .gradient_accumulation_steps = 2,
                              .steps_per_generation = 2,
                              .num_iterations = 2,
                              .num_generations = 4};
  config.trainer.schedule = {.name = "constant", .learning_rate = 0.01};
  config.trainer.optimizer.epsilon = 1e-4;
  config.trainer.loop.max_steps = 4;
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::K3Kl, loss::TokenMean>;
  auto trainer = trainer::make_online(
      config, Loss({}), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
      trainer::OnlineInputs<Scribbler, sync::SharedWeights, std::shared_ptr<model::Policy>>{
          .policy = decoder,
          .generator = engine,
          .prompts = prompts,
          .rewards = {{reward::from("arm", [](const reward::Sample& s) { return s.ids[0] % 5 - s.ids.size() / 9.0; }),
                       1.0}},
          .reference = all ? shards->frozen_copy(*decoder) : decoder->reference(),
          .world = world,
          .placement = shards != nullptr ? std::make_shared<trainer::ShardedPlacement>(shards, world) : nullptr});
  std::vector<double> out;
  for (std::int64_t step = 0; step < 4; ++step) {
    const run::StepResult result = trainer.step(step);
    out.insert(out.end(), {result.loss, result.grad_norm});
    for (const auto& [name, value] : result.metrics.values())
      if (!name.starts_with("time/") && !name.starts_with("profiling/")) out.push_back(value);
  }
  if (shards != nullptr)
    for (const auto& [name, sum] : rlalgo::support::sums_of_squares(*shards)) out.push_back(sum);
  else
    for (const auto& p : decoder->parameters()) out.push_back(p.value.square().sum().template item<double>());
  return out;
}

}  // namespace

TEST_CASE("ranks in context groups train a decoder as one rank does, in float64") {
  const std::vector<double> one = trained_decoder(std::make_shared<distributed::World>());
  for (const auto& [ranks, size] : {std::pair{2, 2}, {4, 2}, {4, 4}})
    rlalgo::support::on_ranks(ranks, [&, size = size](const std::shared_ptr<distributed::World>& world) {
      world->set_context_size(size);
      const std::vector<double> many = trained_decoder(world);
      RANK_CHECK(many.size() == one.size());
      for (std::size_t i = 0; i < one.size(); ++i)
        RANK_CHECK(std::abs(many[i] - one[i]) <= 1e-10 * std::max(1.0, std::abs(one[i])));
    });
}

TEST_CASE("ranks with shards of the weights train a decoder as one rank does, in float64, in every layout") {
  const std::vector<double> one = trained_decoder(std::make_shared<distributed::World>());
  for (const rlalgo::support::Layout& layout : rlalgo::support::layouts())
    rlalgo::support::with_ranks(layout.ranks, [&](const std::shared_ptr<distributed::World>& world) {
      world->set_context_size(layout.context);
      const std::vector<double> many = trained_decoder(world, layout);
      RANK_CHECK(many.size() == one.size());
      for (std::size_t i = 0; i < one.size(); ++i)
        RANK_CHECK(std::abs(many[i] - one[i]) <= 1e-10 * std::max(1.0, std::abs(one[i])));
    });
}
