#include <support/catch.hpp>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/reward/functor.hpp>
#include <rlalgo/trainer/asynchronous.hpp>
#include <support/bandit.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;
using rlalgo::support::Bandit;
using rlalgo::support::BanditPulls;

namespace {

using Plain = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
using Corrected = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount,
                                       loss::SamplingCorrection>;

// Pulls by a copy of the logits that publish() replaces.
struct CopiedPulls {
  static constexpr inference::WeightSource weights = inference::WeightSource::snapshot;
  struct Copy {
    std::mutex mutex;
    std::shared_ptr<Bandit> bandit;
    std::int64_t version = -1;
    std::set<std::int64_t> published;
  };
  std::shared_ptr<Copy> copy = std::make_shared<Copy>();
  std::uint64_t further = 0;

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key) {
    std::unique_lock lock(copy->mutex);
    const std::shared_ptr<Bandit> bandit = copy->bandit;
    const std::int64_t version = copy->version;
    lock.unlock();
    auto out = BanditPulls{*bandit, 3, further}.generate(requests, sampling, key);
    for (auto& group : out)
      for (data::Completion& one : group) one.weights_version = version;
    return out;
  }
};

struct CopySync {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::snapshot; }
  std::shared_ptr<CopiedPulls::Copy> copy;
  std::shared_ptr<Bandit> live;

  sync::Published publish(std::int64_t version) {
    const auto fresh = std::make_shared<Bandit>(4, at::kDouble);
    {
      const c10::AutoGradMode off(false);
      fresh->logits.copy_(live->logits);
    }
    const std::lock_guard lock(copy->mutex);
    copy->bandit = fresh;
    copy->version = version;
    copy->published.insert(version);
    return {.version = version, .status = sync::Published::Status::copied, .bytes = 32};
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [copy = copy] {
      const std::lock_guard lock(copy->mutex);
      return copy->version;
    };
  }
};

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "rlalgo_async_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

trainer::OnlineConfig config(std::int64_t steps, const fs::path& output) {
  trainer::OnlineConfig out;
  out.rollouts.geometry = {.micro_batch_size = 16, .num_generations = 8};
  out.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  out.trainer.loop.max_steps = steps;
  out.trainer.loop.output_dir = output;
  out.trainer.loop.progress = false;
  out.trainer.loop.report = false;
  out.trainer.loop.tensorboard = false;
  out.trainer.loop.save = run::Cadence::steps(2);
  return out;
}

std::vector<data::TokenizedPrompt> prompts() {
  std::vector<data::TokenizedPrompt> out(6);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = {.row = static_cast<std::int64_t>(i), .ids = {0}, .prompt = "p", .columns = {}};
  return out;
}

std::shared_ptr<reward::RewardFunction> last_arm() {
  return reward::from("arm", [](const reward::Sample& s) { return static_cast<double>(s.ids.back()); });
}

struct Run {
  std::shared_ptr<Bandit> bandit = std::make_shared<Bandit>(4, at::kDouble);
  CopiedPulls pulls;
  std::vector<std::int64_t> trained;  // rows of the prompts, in order
  std::vector<double> old;            // of each row: whether it had old log-probs

  template <class L>
  auto trainer(L loss, trainer::OnlineConfig settings, sampler::PrefetchConfig prefetch, bool evaluates = false,
               sampler::ReplayConfig replay = {}) {
    return trainer::make_asynchronous(
        std::move(settings), trainer::AsynchronousConfig{.prefetch = std::move(prefetch), .replay = replay},
        std::move(loss), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
        trainer::OnlineInputs<CopiedPulls, CopySync>{
            .policy = bandit,
            .generator = pulls,
            .prompts = prompts(),
            .rewards = {{last_arm()}},
            .evaluation_prompts = evaluates ? prompts() : std::vector<data::TokenizedPrompt>(),
            .sync = {pulls.copy, bandit},
            .on_experience = [this](std::int64_t, trainer::Experience<data::EpisodeRow>& batch) {
              for (const data::EpisodeRow* r : batch.rows) {
                trained.push_back(r->episode().dataset_row);
                old.push_back((*r)->old_log_probs.empty() ? 0.0 : 1.0);
              }
            }});
  }
};

std::string bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("depth 0 is the synchronous run: the same updates, the same records") {
  const Folder folder;
  const auto bandit = std::make_shared<Bandit>(4, at::kDouble);
  BanditPulls pulls{*bandit, 3};
  auto synchronous = trainer::make_online(
      config(6, folder.path / "sync"), Plain({}), advantage::GroupRelative<>(), aggregation::SumThenNormalize(),
      trainer::OnlineInputs<BanditPulls>{
          .policy = bandit, .generator = pulls, .prompts = prompts(), .rewards = {{last_arm()}}});
  synchronous.run();
  Run run;
  run.trainer(Plain({}), config(6, folder.path / "zero"), {.depth = 0}).run();
  CHECK(bytes(folder.path / "zero/model.safetensors") == bytes(folder.path / "sync/model.safetensors"));
  CHECK(bytes(folder.path / "zero/checkpoint-4/optimizer.safetensors") ==
        bytes(folder.path / "sync/checkpoint-4/optimizer.safetensors"));
  std::ifstream a(folder.path / "sync/metrics.jsonl"), b(folder.path / "zero/metrics.jsonl");
  for (std::string x, y; std::getline(a, x) && std::getline(b, y);) {
    auto one = nlohmann::ordered_json::parse(x), other = nlohmann::ordered_json::parse(y);
    for (auto* record : {&one, &other}) {
      const nlohmann::ordered_json copy = *record;
      for (const auto& [key, value] : copy.items())
        if (key.starts_with("time/")) record->erase(key);
    }
    CHECK(one == other);
    CHECK_FALSE(one.contains("async/staleness/mean"));
  }
}

TEST_CASE("asynchronous generation learns, with a correction and without; the ratio begins where it should") {
  const Folder folder;
  for (const std::int64_t depth : {1, 3}) {
    Run corrected, plain;
    auto with = corrected.trainer(Corrected({}), config(40, folder.path / "a"), {.depth = depth});
    auto without = plain.trainer(Plain({}), config(40, folder.path / "b"), {.depth = depth});
    for (std::int64_t k = 0; k < 40; ++k) {
      const run::StepResult x = with.step(k), y = without.step(k);
      CHECK(x.metrics.value("clip_ratio/region_mean") == 0.0);  // old log-probs are of the policy as it is
      CHECK(x.metrics.value("async/staleness/max") <= static_cast<double>(depth));
      CHECK(std::isfinite(x.metrics.value("sampling/importance_sampling_ratio/mean")));
      if (k == 0) {
        CHECK(x.metrics.value("sampling/importance_sampling_ratio/min") == 1.0);
        CHECK(x.metrics.value("sampling/importance_sampling_ratio/max") == 1.0);
      }
      CHECK(y.metrics.value("async/queue_wait_s") >= 0.0);
    }
    for (const double had : corrected.old) CHECK(had == 0.0);
    double from_sampling = 0;
    for (const double had : plain.old) from_sampling += had;
    CHECK(from_sampling > 0);  // without a correction the ratio is to the weights that drew them
    for (const Run* run : {&corrected, &plain}) {
      const at::Tensor p = at::log_softmax(run->bandit->logits.detach(), 0).exp();
      CHECK(p[3].item<double>() > 0.5);
    }
    CHECK(corrected.pulls.copy->published.size() == 40);
  }
}

TEST_CASE("weights are handed over every interval, and for an evaluation, which does not disturb the producer") {
  const Folder folder;
  Run run;
  trainer::OnlineConfig c = config(9, folder.path / "a");
  c.trainer.loop.eval = run::Cadence::steps(4);
  c.evaluation_generations = 2;
  run.trainer(Corrected({}), c, {.depth = 2, .sync_interval = 3}, true).run();
  CHECK(run.pulls.copy->published == std::set<std::int64_t>{0, 3, 4, 6, 8, 9});
  CHECK(run.trained.size() == 9 * 16);
}

TEST_CASE("a run that is resumed trains on the prompts that one without an interruption does") {
  const Folder folder;
  Run whole;
  whole.trainer(Corrected({}), config(12, folder.path / "whole"), {.depth = 2}).run();
  for (const std::int64_t stop : {2, 4, 6}) {
    Run first, second;
    const fs::path part = folder.path / ("part" + std::to_string(stop));
    first.trainer(Corrected({}), config(stop, part), {.depth = 2}).run();
    trainer::OnlineConfig c = config(12, part);
    c.trainer.loop.resume_from_checkpoint = part / ("checkpoint-" + std::to_string(stop));
    second.trainer(Corrected({}), c, {.depth = 2}).run();
    std::vector<std::int64_t> trained = first.trained;
    trained.insert(trained.end(), second.trained.begin(), second.trained.end());
    CHECK(trained == whole.trained);
  }
}

TEST_CASE("replayed groups are trained on as what they are: counted, corrected to the weights that drew them") {
  const Folder folder;
  for (const std::int64_t depth : {0, 2}) {
    Run run;
    trainer::OnlineConfig c = config(30, folder.path / std::to_string(depth));
    c.rollouts.geometry = {.micro_batch_size = 4, .num_generations = 2};  // many groups of equal rewards
    auto trainer = run.trainer(Corrected({}), c, {.depth = depth}, false, {.capacity = 6});
    double replaced = 0, idle = 0;
    for (std::int64_t k = 0; k < 30; ++k) {
      const run::StepResult step = trainer.step(k);
      replaced += step.metrics.value("replay_buffer_replacements");
      idle += step.metrics.value("frac_reward_zero_std");
      CHECK(std::isfinite(step.metrics.value("sampling/importance_sampling_ratio/mean")));
      CHECK(step.metrics.value("clip_ratio/region_mean") == 0.0);
    }
    CHECK(replaced >= 3);
    CHECK(idle < 6);  // groups without signal remain only while the buffer is empty
  }
}

TEST_CASE("without a correction replayed groups have the old log-probs that were asked for") {
  const Folder folder;
  for (const std::int64_t depth : {0, 2})
    for (const bool recompute : {false, true}) {
      Run run;
      trainer::OnlineConfig c = config(30, folder.path / (std::to_string(depth) + std::to_string(recompute)));
      c.rollouts.geometry = {.micro_batch_size = 4, .num_generations = 2};
      auto trainer =
          run.trainer(Plain({}), c, {.depth = depth}, false, {.capacity = 6, .recompute_log_probs = recompute});
      double replaced = 0, clipped = 0;
      for (std::int64_t k = 0; k < 30; ++k) {
        const run::StepResult step = trainer.step(k);
        replaced += step.metrics.value("replay_buffer_replacements");
        clipped += step.metrics.value("clip_ratio/region_mean");
      }
      CHECK(replaced >= 3);
      if (depth == 0) CHECK((clipped > 0) == !recompute);  // ratios to weights that are long gone, or ratios of 1
    }
}

TEST_CASE("a step tells what its own side took, where generation runs beside it") {
  const Folder folder;
  Run run;
  trainer::OnlineConfig c = config(3, folder.path);
  c.rollouts.geometry = {.micro_batch_size = 8, .gradient_accumulation_steps = 2, .num_generations = 8};
  auto trainer = run.trainer(Corrected({}), c, {.depth = 1});
  for (std::int64_t k = 0; k < 3; ++k) {
    const os::Stopwatch watch;
    const run::StepResult step = trainer.step(k);
    const double took = watch.seconds();
    CHECK(step.metrics.value("async/train_seq_len") == 4);  // one token of the prompt and three pulls
    CHECK(step.metrics.value("async/forward_s") > 0);
    CHECK(step.metrics.value("async/forward_s") < took);
    CHECK(step.metrics.value("async/training_tok/s") >=
          0.999 * 16 * step.metrics.value("completions/mean_length") / took);
  }
  CHECK(std::isnan(run.trainer(Corrected({}), c, {.depth = 0}).step(0).metrics.value("async/forward_s")));
}

// Streamed with depth 0 all rows are of the weights that are trained, as those of the synchronous run are.
template <class L>
void streamed_is_whole(L loss, bool to_the_bit, std::uint64_t further = 0) {
  const Folder folder;
  for (const bool skip : {false, true})
    for (const auto& geometry :
         {sampler::Geometry{
              .micro_batch_size = 4, .gradient_accumulation_steps = 4, .steps_per_generation = 4, .num_generations = 4},
          sampler::Geometry{
              .micro_batch_size = 3, .gradient_accumulation_steps = 4, .steps_per_generation = 4, .num_generations = 2},
          sampler::Geometry{.micro_batch_size = 4,
          .gradient_accumulation_steps = 2,
          .steps_per_generation = 2,
          .num_iterations = 2,
          .num_generations = 2},
          sampler::Geometry{
              .micro_batch_size = 4, .gradient_accumulation_steps = 1, .steps_per_generation = 3, .num_generations = 2},
          sampler::Geometry{.micro_batch_size = 4,
          .gradient_accumulation_steps = 6,
          .steps_per_generation = 2,
          .num_generations = 2}})
      for (const std::int64_t groups : {1, 2, 3, 100}) {  // 100: more than there are
        INFO("S " << geometry.steps_per_generation << " groups " << groups << " skip " << skip);
        trainer::OnlineConfig c = config(8, folder.path / "x");
        c.rollouts.geometry = geometry;
        c.trainer.skip_zero_advantages = skip;
        Run whole, streamed;
        whole.pulls.further = streamed.pulls.further = further;
        auto one = whole.trainer(loss, c, {.depth = 0});
        auto other = streamed.trainer(loss, c, {.depth = 0, .stream_groups = groups});
        for (std::int64_t k = 0; k < 8; ++k) {
          const run::StepResult x = one.step(k), y = other.step(k);
          CHECK(y.loss == Approx(x.loss).margin(1e-13).epsilon(1e-12));
          CHECK(y.grad_norm == Approx(x.grad_norm).margin(1e-13).epsilon(1e-12));
          CHECK(x.tokens == y.tokens);
          for (const auto& [name, value] : x.metrics.values()) {
            INFO(name);
            if (std::isnan(value))
              CHECK(std::isnan(y.metrics.value(name)));
            else
              CHECK(y.metrics.value(name) == Approx(value).margin(1e-12));
          }
        }
        CHECK(whole.trained == streamed.trained);
        const double apart = (whole.bandit->logits - streamed.bandit->logits).abs().max().item<double>();
        CHECK(apart <= (to_the_bit ? 0.0 : 1e-13));
        CHECK(whole.bandit->logits.abs().max().item<double>() > 0.1);
      }
}

TEST_CASE("a streamed step is the step of the full batch: its loss, gradient, weights and metrics") {
  streamed_is_whole(Plain({}), false);
  streamed_is_whole(loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::SequenceMean>({}),
                    true);
  for (const std::uint64_t further : {1, 2}) {  // episodes of several rows, whose number is not known before
    streamed_is_whole(Plain({}), false, further);
    streamed_is_whole(loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::SequenceMean>({}),
                      false, further);
  }
  streamed_is_whole(loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::TokenMean>({}), true);
}

TEST_CASE("streamed generation ahead of training learns, and its weights are at most so old") {
  const Folder folder;
  Run run;
  trainer::OnlineConfig c = config(40, folder.path);
  c.rollouts.geometry = {
      .micro_batch_size = 4, .gradient_accumulation_steps = 4, .steps_per_generation = 4, .num_generations = 8};
  auto trainer = run.trainer(Corrected({}), c, {.depth = 2, .stream_groups = 1});
  for (std::int64_t k = 0; k < 40; ++k) {
    const run::StepResult step = trainer.step(k);
    CHECK(step.metrics.value("async/staleness/max") <= 2);
    CHECK(step.metrics.value("clip_ratio/region_mean") == 0.0);
    CHECK(step.metrics.value("async/queue_wait_s") >= 0.0);
  }
  CHECK(at::log_softmax(run.bandit->logits.detach(), 0).exp()[3].item<double>() > 0.5);
}
