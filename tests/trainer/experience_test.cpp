#include <cmath>
#include <fstream>
#include <iterator>

#include <ATen/Parallel.h>

#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/sampler/answer_rows.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/trainer/trainer.hpp>

using namespace rlalgo;
using rlalgo::support::Bandit;
using rlalgo::support::BanditPulls;

namespace {

// Reports how far the ratio of each token is from 1.
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

// The least sampler: completions made elsewhere, with advantages of their own. No rewards, no generator, no end.
struct Recorded {
  using Rows = sampler::RolloutRows;
  std::int64_t weights_version = 0;
  std::vector<float> log_probs = {};  // of the generator

  sampler::Batch<data::Episode> next(std::int64_t step) {
    const auto rows = std::make_shared<std::vector<data::Episode>>(2);
    for (std::size_t i = 0; i < 2; ++i) {
      (*rows)[i].first().prompt_ids = {0};
      (*rows)[i].first().completion_ids = {static_cast<std::int32_t>(i)};
      (*rows)[i].first().sampling_log_probs = log_probs;
      (*rows)[i].first().weights_version = weights_version;
      (*rows)[i].advantage = i == 0 ? 1.0 : -1.0;
    }
    latest = rows;
    next_step = step + 1;
    sampler::Batch<data::Episode> batch;
    batch.parts = {{&(*rows)[0]}, {&(*rows)[1]}};
    batch.owners = {rows};
    return batch;
  }
  nlohmann::ordered_json state() const { return {{"next_step", next_step}}; }
  void restore(const nlohmann::ordered_json& state) { next_step = state.at("next_step").get<std::int64_t>(); }

  std::weak_ptr<std::vector<data::Episode>> latest;
  std::int64_t next_step = 0;
};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class S>
using Plain = trainer::Trainer<RatioLoss, advantage::None, S, aggregation::None, sync::NoSync>;

template <class T, class S, class L>
T plain_trainer(const std::shared_ptr<Bandit>& policy, const std::shared_ptr<S>& sampler, L loss,
                const std::filesystem::path& output = "model-out", std::int64_t steps = 3) {
  trainer::TrainerConfig config;
  config.schedule = {.name = "constant", .learning_rate = 0.1};
  config.loop.max_steps = steps;
  config.loop.output_dir = output;
  config.loop.progress = config.loop.report = config.loop.tensorboard = false;
  return T(config,
           {.policy = policy, .loss = loss, .estimator = {}, .sampler = sampler, .aggregation = {}, .sync = {}});
}

}  // namespace

TEST_CASE("a sampler that is no more than a sampler trains by steps and by runs") {
  const support::ScratchDirectory scratch;
  const auto policy = std::make_shared<Bandit>(2, at::kDouble);
  const auto sampler = std::make_shared<Recorded>();
  auto trainer = plain_trainer<Plain<Recorded>>(policy, sampler, RatioLoss(), scratch.path());
  const run::StepResult result = trainer.step(0);
  CHECK(result.metrics.value("ratio") == 1.0);
  CHECK(result.tokens == 4);
  REQUIRE(result.seconds.size() == 4);
  CHECK(result.seconds[0].first == "data");
  CHECK(result.seconds[1].first == "score");
  CHECK(policy->logits[0].item<double>() > policy->logits[1].item<double>());
  sampler->weights_version = 1;
  CHECK(trainer.run().step == 3);
  CHECK(trainer.version() == 4);
  CHECK(sampler->next_step == 3);
}

TEST_CASE("a batch owns its rows until the next step is done, and training writes nothing into them unasked") {
  const auto policy = std::make_shared<Bandit>(2, at::kDouble);
  const auto sampler = std::make_shared<Recorded>();
  auto trainer = plain_trainer<Plain<Recorded>>(policy, sampler, RatioLoss());
  (void)trainer.step(0);
  const auto first = sampler->latest;
  REQUIRE_FALSE(first.expired());
  CHECK((*first.lock())[0].first().old_log_probs.size() == 1);  // remembered: the loss reads them
  (void)trainer.step(1);
  CHECK(first.expired());
}

TEST_CASE("rows of earlier weights have the ratio to the weights that generated them, or the log says why not") {
  const auto policy = std::make_shared<Bandit>(2, at::kDouble);
  const auto sampler = std::make_shared<Recorded>();
  auto trainer = plain_trainer<Plain<Recorded>>(policy, sampler, RatioLoss());
  sampler->weights_version = -5;  // never ours
  sampler->log_probs = {std::log(0.25F)};
  const run::StepResult stale = trainer.step(0);
  CHECK(stale.metrics.value("ratio") == Approx(0.5 / 0.25).epsilon(1e-6));
  CHECK(stale.warnings.empty());
  sampler->log_probs = {};
  const run::StepResult unknown = trainer.step(1);
  REQUIRE(unknown.warnings.size() == 2);  // one a micro-batch
  CHECK_THAT(unknown.warnings[0], Catch::Contains("weights version -5 (now 1)"));
  CHECK(unknown.metrics.value("ratio") == Approx(1.0));
}

namespace {

// A third kind of rows, unknown to the library: documents cut into blocks, each predicted from the block before it.
struct Document {
  std::vector<data::TokenId> ids;
  double weight = 1.0;
  double reference = 0.0;  // filled before training
};

struct BlockRows {
  using Row = Document;
  static constexpr loss::RowKind kind{"blocks"};
  static constexpr sampler::RowHooks hooks{.complete = true, .blame = true, .summary = true};
  static model::TokenTree tree(std::span<const Document* const> rows, const loss::Needs&) {
    std::vector<model::Sequence> views;
    for (const Document* d : rows) views.push_back({std::span(d->ids).first(2), std::span(d->ids).subspan(2)});
    return model::build_tree(views);
  }
  static void count(std::span<const Document* const> rows, const loss::Needs&, loss::Counts& counts) {
    counts.rows += static_cast<double>(rows.size());
    for (const Document* d : rows) counts.tokens += static_cast<double>(d->ids.size() - 2);
  }
  static loss::Scored collate(std::span<const Document* const> rows, const model::Scores& scores, const loss::Needs&) {
    loss::Scored out;
    out.log_prob = scores.log_prob;
    std::vector<double> weights;
    std::vector<std::int64_t> row;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      weights.insert(weights.end(), rows[i]->ids.size() - 2, rows[i]->weight);
      row.insert(row.end(), rows[i]->ids.size() - 2, static_cast<std::int64_t>(i));
    }
    out.row = tensor::from_values(row, at::TensorOptions().dtype(at::kLong));
    out.mask = tensor::from_values(weights, scores.log_prob.options().requires_grad(false));
    return out;
  }
  static std::int64_t tokens(const Document& d) { return static_cast<std::int64_t>(d.ids.size()); }
  static void complete(std::span<Document* const> rows, const sampler::Scorers&, const loss::Needs&,
                       sampler::Warnings& warnings) {
    for (Document* d : rows) d->reference = 1.0;
    warnings.push_back("completed");
  }
  static std::int64_t dataset_row(const Document& d) { return d.ids[0]; }
  static data::Json describe(const Document& d, double loss, double, const data::Decode&) {
    return {{"row", d.ids[0]}, {"loss", loss}};
  }
  struct Summary {
    std::size_t seen = 0;
    void add(std::span<const Document* const> rows, const loss::Result&) { seen += rows.size(); }
    void write(const std::filesystem::path& directory, std::int64_t step, const std::string& split,
               const data::Decode&) const {
      os::write_file(directory / "blocks.txt", split + std::to_string(step) + ":" + std::to_string(seen));
    }
    data::Json state(const data::Decode&) const { return seen; }
    void restore(const data::Json& state) { seen = state.get<std::size_t>(); }
    void merge(const data::Json& state) { seen += state.get<std::size_t>(); }
  };
};

struct Blocks {
  using Rows = BlockRows;
  std::int64_t poisoned = -1;
  sampler::Batch<Document> next(std::int64_t step) {
    const auto rows = std::make_shared<std::vector<Document>>();
    for (std::int32_t d = 0; d < 3; ++d)
      rows->push_back({.ids = {d, 1, 2, 3}, .weight = d == poisoned ? NAN : 1.0 + d});
    sampler::Batch<Document> batch;
    batch.parts = {{&(*rows)[0], &(*rows)[1]}, {&(*rows)[2]}};
    batch.owners = {rows};
    batch.seconds = {{"cut", 0.25}};
    at = step;
    return batch;
  }
  std::int64_t steps() const { return 1; }
  nlohmann::ordered_json state() const { return at; }
  void restore(const nlohmann::ordered_json& state) { at = state.get<std::int64_t>(); }
  std::int64_t at = 0;
};

struct BlockLikelihood {
  struct Config {};
  static constexpr loss::Needs needs{};
  static constexpr loss::RowKind rows{"blocks"};
  loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const {
    return {s.log_prob.mul(s.mask).sum().div(-counts.tokens), {}};
  }
};

using BlockTrainer = trainer::Trainer<BlockLikelihood, advantage::None, Blocks, aggregation::None, sync::NoSync>;

}  // namespace

TEST_CASE("a kind of rows of one's own trains, evaluates, is completed, summarized and blamed") {
  const support::ScratchDirectory scratch;
  const auto policy = std::make_shared<Bandit>(4, at::kDouble);
  const auto blocks = std::make_shared<Blocks>();
  {
    auto trainer = plain_trainer<BlockTrainer>(policy, blocks, BlockLikelihood(), scratch.path());
    const run::StepResult first = trainer.step(0);
    CHECK(first.loss == Approx(2 * std::log(4.0)));  // weights 1, 2, 3
    CHECK(first.tokens == 12);
    CHECK(first.warnings == std::vector<std::string>{"completed", "completed"});
    CHECK(first.seconds[0] == std::pair<std::string, double>("cut", 0.25));
    CHECK(trainer.run().step == 3);
    CHECK(text_of(scratch.path() / "blocks.txt") == "train4:3");
  }
  trainer::TrainerConfig config;
  config.schedule = {.name = "constant", .learning_rate = 0.1};
  config.loop.max_steps = 2;
  config.loop.output_dir = scratch.path() / "evaluated";
  config.loop.progress = config.loop.report = config.loop.tensorboard = false;
  config.loop.eval = run::Cadence::steps(1);
  BlockTrainer trainer(config, {.policy = policy,
                                .loss = {},
                                .estimator = {},
                                .sampler = blocks,
                                .aggregation = {},
                                .sync = {},
                                .evaluation = std::make_shared<Blocks>()});
  CHECK(trainer.run().step == 2);
  CHECK(text_of(scratch.path() / "evaluated/blocks.txt") == "evaluation2:3");
  blocks->poisoned = 2;
  CHECK_THROWS_WITH(trainer.step(2), Catch::Contains("[rlalgo.trainer.31]") && Catch::Contains("dataset rows 2"));
}

namespace {

// What happens in a step, in order: P a micro-batch is scored, S the summary gets its rows.
std::string order;

struct Noted final : model::Policy {
  std::shared_ptr<Bandit> bandit = std::make_shared<Bandit>(4, at::kDouble);
  std::vector<int> threads;
  model::Scores score(const model::TokenTree& tree, const model::ScoreOptions& options) override {
    order += 'P';
    threads.push_back(at::get_num_threads());
    return bandit->score(tree, options);
  }
  std::vector<model::Parameter> parameters() override { return bandit->parameters(); }
  [[nodiscard]] double product_flops(std::int64_t tokens) const override { return 1e3 * static_cast<double>(tokens); }
};

struct NotedRows : BlockRows {
  struct Summary : BlockRows::Summary {
    void add(std::span<const Document* const> rows, const loss::Result& result) {
      order += 'S';
      CHECK_FALSE(result.value.requires_grad());
      BlockRows::Summary::add(rows, result);
    }
  };
};

struct NotedBlocks : Blocks {
  using Rows = NotedRows;
};

using NotedTrainer = trainer::Trainer<BlockLikelihood, advantage::None, NotedBlocks, aggregation::None, sync::NoSync>;

}  // namespace

TEST_CASE("nothing is read of a micro-batch before all are under way, and the one that is not finite is still named") {
  const support::ScratchDirectory scratch;
  const auto policy = std::make_shared<Noted>();
  const auto blocks = std::make_shared<NotedBlocks>();
  trainer::TrainerConfig config;
  config.schedule = {.name = "constant", .learning_rate = 0.1};
  config.loop.output_dir = scratch.path();
  NotedTrainer trainer(
      config, {.policy = policy, .loss = {}, .estimator = {}, .sampler = blocks, .aggregation = {}, .sync = {}});
  order.clear();
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  CHECK(trainer.step(0).loss == Approx(2 * std::log(4.0)));
  CHECK(order == "PPSS");
  CHECK(policy->threads == std::vector<int>{1, 1});  // products of a few operations
  CHECK(at::get_num_threads() == 2);
  at::set_num_threads(threads);
  const at::Tensor weights = policy->bandit->logits.detach().clone();
  blocks->poisoned = 0;  // of the first micro-batch
  CHECK_THROWS_WITH(trainer.step(1), Catch::Contains("[rlalgo.trainer.31]") && Catch::Contains("the loss") &&
                                         Catch::Contains("1 of 2 answers, dataset rows 0"));
  CHECK(policy->bandit->logits.detach().equal(weights));
}

namespace {

struct Counting {
  static constexpr bool reaches(inference::WeightSource) { return true; }
  std::vector<std::int64_t>* versions;
  std::int64_t bytes = 0;
  sync::Published publish(std::int64_t version) {
    versions->push_back(version);
    in_force = version;
    return {version, sync::Published::Status::sent, bytes, 0.125};
  }
  std::function<std::int64_t()> version_source() const {
    return [this] { return in_force; };
  }
  std::int64_t in_force = -1;
};

}  // namespace

TEST_CASE("weights are published where the sampler is about to generate, and what moved them is timed") {
  const auto policy = std::make_shared<Bandit>(4, at::kDouble);
  BanditPulls pulls{*policy};
  sampler::RolloutsConfig rollouts;
  rollouts.geometry = {.micro_batch_size = 4, .num_iterations = 2, .num_generations = 4};
  const std::vector<data::TokenizedPrompt> prompts(2, {.row = 0, .ids = {0}, .prompt = "p", .columns = {}});
  std::vector<std::int64_t> versions;
  using Trainer = trainer::Trainer<RatioLoss, advantage::GroupRelative<>, sampler::Rollouts<BanditPulls>,
                                   aggregation::SumThenNormalize, Counting>;
  const auto sampler = std::make_shared<sampler::Rollouts<BanditPulls>>(
      prompts, pulls, std::vector<sampler::WeightedReward>{}, data::ids_as_text, rollouts,
      [&] { return versions.empty() ? -1 : versions.back(); });
  trainer::TrainerConfig config;
  config.schedule = {.name = "constant", .learning_rate = 0.1};
  config.loop.max_steps = 4;
  Trainer trainer(config, {.policy = policy,
                           .loss = {},
                           .estimator = {},
                           .sampler = sampler,
                           .aggregation = {},
                           .sync = {.versions = &versions, .bytes = 32}});
  CHECK(versions.empty());  // nobody has asked for a generation yet
  const run::StepResult first = trainer.step(0);
  CHECK(versions == std::vector<std::int64_t>{0});
  const std::vector<std::string> names = {"generate", "reward", "score", "publish", "train", "optimizer"};
  REQUIRE(first.seconds.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) CHECK(first.seconds[i].first == names[i]);
  CHECK(first.seconds[3].second == 0.125);
  const run::StepResult second = trainer.step(1);  // the same generation again
  CHECK(versions == std::vector<std::int64_t>{0});
  CHECK(second.seconds.size() == names.size() - 1);
  (void)trainer.step(2);
  CHECK(versions == std::vector<std::int64_t>{0, 2});
}
