// The trainer: one optimizer step of any composition of loss, estimator, sampler, aggregation and sync policy.
//
//   batch  ← sampler.next(step)                     rollouts or answers, already in micro-batches
//   A      ← aggregation(estimator, rewards)        host; rollouts only
//   refs   ← what Loss::needs says                  no gradient
//   counts ← world.sum(counts of this rank)         denominators are known before any backward
//   for each micro-batch: loss(score(part), counts).backward()
//   world.sum(gradients); clip; optimizer; schedule; sync.publish(version)
//
// Contains no algorithm. Because denominators are global counts and gradients are summed, k micro-batches and w ranks
// give the gradient of one. Loop control, logging, checkpoints and resume are in run/loop.hpp.
//
// Errors: [rlalgo.trainer.20] the loss needs a reference and there is none; [rlalgo.trainer.21] a checkpoint lacks a
// parameter; [rlalgo.run.9] a loss or gradient that is not finite, before the weights are touched; the others of
// offending_rows.hpp, loop.hpp and checkpoint.hpp.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/core/clock.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/step.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/tensor/masked.hpp>
#include <rlalgo/trainer/collate.hpp>
#include <rlalgo/trainer/collate_answers.hpp>
#include <rlalgo/trainer/companion.hpp>
#include <rlalgo/trainer/offending_rows.hpp>
#include <rlalgo/trainer/pair_extremes.hpp>
#include <rlalgo/trainer/prepare.hpp>
#include <rlalgo/trainer/rollout_sample.hpp>

namespace rlalgo::trainer {

// What is independent of the method.
struct TrainerConfig {
  double temperature = 1.0;    // of the scored distribution; the generator's, so that the ratio compares like with like
  double max_grad_norm = 1.0;  // global L2 norm; 0 = no clipping
  double steps_per_epoch = 0.0;  // optimizer steps that make one pass over the data; 0 = unknown, epoch stays 0
  std::int64_t score_rows = 8;   // rows per forward pass when scoring without gradient
  // Rows of advantage 0 are not computed. For losses that are a surrogate and nothing else (no KL, no entropy bonus)
  // and divide by counts of the step: their gradient is the same. Metrics of the loss are then of the other rows.
  bool skip_zero_advantages = false;
  optim::AdamWConfig adamw;
  optim::ScheduleConfig schedule;
  run::LoopConfig loop;
};

template <class L, class S>
concept SameRows = loss::Loss<L> && sampler::Sampler<S> &&(L::rows == S::rows);

// Rewards of generated rows become advantages; answers of a dataset have none, so neither part belongs there.
template <class A, class G, class S>
concept AdvantageFor = (S::generates && advantage::AdvantageEstimator<A> && aggregation::AggregationFor<G, A>) ||
                       (!S::generates && std::same_as<A, advantage::None> && std::same_as<G, aggregation::None>);

template <class L, class A, class S, class G, class Y>
requires loss::Loss<L> && sampler::Sampler<S> && SameRows<L, S> && AdvantageFor<A, G, S> && sync::SyncPolicyFor<Y, S>
class Trainer {
 public:
  // The parts of a run. `reference` is required exactly when the loss needs reference log-probs.
  struct Parts {
    std::shared_ptr<model::Policy> policy;
    L loss;
    A estimator;
    std::shared_ptr<S> sampler;
    G aggregation;
    Y sync;
    std::shared_ptr<model::Policy> reference = nullptr;
    std::vector<std::shared_ptr<Companion>> companions = {};            // a synced reference, controllers
    std::shared_ptr<S> evaluation = nullptr;                            // batches of a held-out split
    std::function<void(const std::filesystem::path&)> save_model = {};  // default: the parameters in model.safetensors
    data::Decode decode = data::ids_as_text;  // preference data: for pairs.json and offending rows
    std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
  };

  Trainer(TrainerConfig config, Parts parts)
      : config_(std::move(config)),
        parts_(std::move(parts)),
        parameters_(parts_.policy->parameters()),
        optimizer_(parameters_, config_.adamw),
        schedule_(config_.schedule, config_.loop.max_steps) {
    if (reference_needed() && !parts_.reference && !brings_reference(*parts_.sampler))
      core::raise("trainer", 20,
                  {.what = "the loss compares with a reference model, but there is none",
                   .remedy = "pass Parts::reference, or use a loss without a KL penalty"});
    parts_.sync.publish(version_);
  }

  // Optimizer step number `index` (0-based): one update of the weights.
  run::StepResult step(std::int64_t index) {
    run::StepResult result;
    core::Stopwatch watch;
    typename S::Batch batch = parts_.sampler->next(index);
    if constexpr (S::generates)
      result.seconds = {{"generate", batch.generation_seconds}, {"reward", batch.reward_seconds}};
    else
      result.seconds = {{"data", watch.seconds()}};
    result.metrics.merge(batch.metrics);
    result.warnings = batch.warnings;

    core::Stopwatch score_watch;
    prepare(batch, result.metrics);
    result.seconds.emplace_back("score", score_watch.seconds());

    core::Stopwatch train_watch;
    const loss::Counts counts = global_counts(batch);
    result.loss = accumulate(batch, counts, result.metrics);
    result.seconds.emplace_back("train", train_watch.seconds());

    core::Stopwatch optimizer_watch;
    std::vector<Tensor> gradients;
    for (const model::Parameter& p : parameters_)
      if (p.value.grad().defined()) gradients.push_back(p.value.grad());
    parts_.world->sum(gradients);
    result.grad_norm = optim::clip_grad_norm(gradients, config_.max_grad_norm);
    if constexpr (!S::generates)
      if (!std::isfinite(result.grad_norm)) blame("gradient", rows_of(batch), counts);
    run::require_finite(index + 1, result.loss, result.grad_norm);
    result.learning_rate = schedule_(index);
    optimizer_.step(result.learning_rate);
    optimizer_.zero_grad();
    parts_.sync.publish(++version_);
    for (const auto& companion : parts_.companions) companion->after_step(index + 1, result.metrics);
    result.seconds.emplace_back("optimizer", optimizer_watch.seconds());

    latest_rows_ = rows_of(batch);
    if (config_.steps_per_epoch > 0) result.epoch = static_cast<double>(index + 1) / config_.steps_per_epoch;
    for (const auto* row : latest_rows_) result.tokens += token_count(*row);
    latest_batch_ = std::move(batch);
    return result;
  }

  // Trains from the start, or from run::LoopConfig::resume_from_checkpoint, to the end or to an interruption.
  run::Outcome run(std::span<run::Observer* const> observers = {}) {
    run::Callbacks callbacks;
    callbacks.train_step = [this](std::int64_t index) { return step(index); };
    if (parts_.evaluation) callbacks.evaluate = [this] { return evaluate(); };
    callbacks.save_model = [this](const std::filesystem::path& directory) { save_model(directory); };
    callbacks.save_state = [this](const std::filesystem::path& directory) { return save_state(directory); };
    callbacks.restore_state = [this](const std::filesystem::path& directory, const run::Json& state) {
      restore_state(directory, state);
    };
    if constexpr (!S::generates)
      if (!parts_.evaluation) callbacks.samples = [this](std::size_t) { return write_pairs("train"); };
    if constexpr (S::generates) callbacks.samples = [this](std::size_t limit) { return latest_samples(limit); };
    run::Loop loop(config_.loop, std::move(callbacks));
    for (run::Observer* observer : observers) loop.observe(*observer);
    return loop.run();
  }

  [[nodiscard]] std::int64_t version() const noexcept { return version_; }
  [[nodiscard]] const TrainerConfig& config() const noexcept { return config_; }

 private:
  using Row = std::remove_pointer_t<typename decltype(S::Batch::parts)::value_type::value_type>;

  static std::vector<Row*> rows_of(const typename S::Batch& batch) {
    std::vector<Row*> rows;
    for (const auto& part : batch.parts) rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }

  void prepare(typename S::Batch& batch, core::Metrics& metrics) {
    if constexpr (S::generates) {
      const auto chunk = static_cast<std::size_t>(config_.score_rows);
      if (reference_needed()) {
        const auto rows = all_rollouts(batch);
        score_columns(
            *parts_.reference, rows, chunk, config_.temperature,
            [](data::Rollout & r) -> auto& { return r.reference_log_probs; });
      }
      if (aggregation::needs_divergence(parts_.aggregation)) {
        const auto rows = all_rollouts(batch);
        score_columns(
            *parts_.policy, rows, chunk, config_.temperature,
            [](data::Rollout & r) -> auto& { return r.old_log_probs; });
      }
      for (const auto& generation : batch.fresh)
        assign_advantages(parts_.aggregation, parts_.estimator, *generation, metrics);
      if (L::needs.old_log_prob && !aggregation::needs_divergence(parts_.aggregation)) {
        const auto rows = trained_later(batch);
        score_columns(
            *parts_.policy, rows, chunk, config_.temperature,
            [](data::Rollout & r) -> auto& { return r.old_log_probs; });
      }
    } else {
      for (const auto& part : batch.parts) {
        if constexpr (L::needs.reference_log_prob)
          if (parts_.reference) score_references(*parts_.reference, part, config_.temperature);
        if constexpr (L::needs.mismatched)
          score_mismatched(*parts_.policy, parts_.reference.get(), part, config_.temperature);
      }
    }
  }

  [[nodiscard]] bool reference_needed() const {
    return L::needs.reference_log_prob || aggregation::needs_divergence(parts_.aggregation);
  }

  // Whether rows carry the log-probs of a reference that was asked before training.
  static bool brings_reference(const S& sampler) {
    if constexpr (requires { sampler.has_reference(); })
      return sampler.has_reference();
    else
      return false;
  }

  loss::Counts global_counts(const typename S::Batch& batch) {
    loss::Counts counts = count(batch.parts, L::needs);
    double totals[] = {counts.rows,          counts.tokens,
                       counts.micro_batches, counts.likelihood_tokens,
                       counts.desirable,     counts.mismatched_log_ratio};
    parts_.world->sum(totals);
    return {totals[0], totals[1], totals[2], totals[3], totals[4], totals[5]};
  }

  // Forward of every micro-batch, and backward unless gradients are disabled; returns the loss of the step on this
  // rank.
  double accumulate(typename S::Batch& batch, const loss::Counts& counts, core::Metrics& metrics) {
    double total = 0.0;
    std::uint64_t draw = static_cast<std::uint64_t>(version_) << 24U;  // the same after a resume
    for (const auto& part : trained_parts(batch, metrics)) {
      ++draw;
      if (part.empty()) continue;
      const auto views = sequences(part, L::needs);
      const model::Scores scores =
          parts_.policy->score(model::build_tree(views), {.temperature = config_.temperature,
                                                          .entropy = true,
                                                          .entropy_gradient = loss::active_needs(parts_.loss).entropy,
                                                          .draw = draw,
                                                          .token_statistics = L::needs.token_statistics,
                                                          .collision = L::needs.collision});
      const loss::Result result = parts_.loss(collate(part, scores, L::needs), counts);
      if constexpr (!S::generates) {
        if (c10::GradMode::is_enabled() && !std::isfinite(result.value.template item<double>()))
          blame("loss", part, counts);
        note_margins(part, result.margins);
      }
      if (result.value.requires_grad()) result.value.backward();
      if constexpr (L::needs.old_log_prob) remember_old(part, scores.log_prob);
      metrics.merge(result.metrics);
      total += result.value.template item<double>();
    }
    return total;
  }

  std::vector<std::vector<Row*>> trained_parts(const typename S::Batch& batch, core::Metrics& metrics) const {
    if constexpr (S::generates)
      if (config_.skip_zero_advantages && c10::GradMode::is_enabled()) return without_idle_rows(batch.parts, metrics);
    return batch.parts;
  }

  // The step stops here: its offending rows are named and saved.
  [[noreturn]] void blame(const std::string& what, std::span<Row* const> rows, const loss::Counts& counts) {
    raise_offending_rows(what, find_offending(*parts_.policy, parts_.loss, rows, counts), rows.size(), version_ + 1,
                         config_.loop.output_dir, parts_.decode);
  }

  void note_margins(std::span<Row* const> part, const Tensor& margins) {
    if (!margins.defined()) return;
    for (std::size_t i = 0; 2 * i + 1 < part.size(); ++i)
      pairs_.add(margins.select(0, static_cast<std::int64_t>(i)).template item<double>(), *part[2 * i],
                 *part[2 * i + 1]);
  }

  // pairs.json of the pairs seen since the last call; returns no samples.
  std::vector<run::Sample> write_pairs(const std::string& split) {
    if (pairs_.seen() > 0) pairs_.write(config_.loop.output_dir, version_, split, parts_.decode);
    pairs_ = PairExtremes();
    return {};
  }

  // Loss and metrics of one pass over the held-out split, without gradient. Draws are keyed, so evaluations of one run
  // differ by the weights only.
  core::Metrics evaluate() {
    const c10::AutoGradMode no_gradient(false);
    const run::Json start = parts_.evaluation->state();
    core::Metrics total;
    pairs_ = PairExtremes();
    for (std::int64_t index = 0; index < parts_.evaluation->steps(); ++index) {
      typename S::Batch batch = parts_.evaluation->next(index);
      total.merge(batch.metrics);
      prepare(batch, total);
      const loss::Counts counts = global_counts(batch);
      const double loss = accumulate(batch, counts, total);
      total.mean("loss", loss * counts.rows, counts.rows);
    }
    parts_.evaluation->restore(start);
    if constexpr (!S::generates) write_pairs("evaluation");
    return total;
  }

  std::vector<run::Sample> latest_samples(std::size_t limit) const {
    std::vector<std::string> names;
    for (const auto& reward : parts_.sampler->rewards()) names.push_back(reward.function->name());
    std::vector<run::Sample> samples;
    for (const data::Rollout* row : latest_rows_)
      if (samples.size() < limit) samples.push_back(to_sample(*row, names));
    return samples;
  }

  void save_model(const std::filesystem::path& directory) const {
    if (parts_.save_model) return parts_.save_model(directory);
    std::vector<model::NamedTensor> tensors;
    for (const model::Parameter& p : parameters_) tensors.emplace_back(p.name, p.value.detach());
    model::write_safetensors(directory / "model.safetensors", std::move(tensors));
  }

  run::Json save_state(const std::filesystem::path& directory) const {
    model::write_safetensors(directory / optimizer_file, optimizer_.state());
    for (const auto& companion : parts_.companions) companion->save(directory);
    return {{"version", version_}, {"sampler", parts_.sampler->state()}};
  }

  // Weights are copied into the tensors that the policy and its generator already share.
  void restore_state(const std::filesystem::path& directory, const run::Json& state) {
    const c10::AutoGradMode no_gradient(false);
    const model::CheckpointFiles files(directory);
    for (model::Parameter& p : parameters_) {
      if (!files.contains(p.name))
        core::raise("trainer", 21,
                    {.what = "the checkpoint lacks a trained parameter",
                     .found = "no tensor " + p.name,
                     .where = directory.string(),
                     .remedy = "resume with the base_model that the run was started with"});
      p.value.copy_(files.read(p.name));
    }
    optimizer_.load_state(model::read_safetensors(directory / optimizer_file));
    for (const auto& companion : parts_.companions) companion->restore(directory);
    parts_.sampler->restore(state.at("sampler"));
    version_ = state.at("version").get<std::int64_t>();
    parts_.sync.publish(version_);
  }

  static constexpr const char* optimizer_file = "optimizer.safetensors";

  TrainerConfig config_;
  Parts parts_;
  std::vector<model::Parameter> parameters_;
  optim::AdamW optimizer_;
  optim::Schedule schedule_;
  std::int64_t version_ = 0;        // number of updates the weights have seen
  PairExtremes pairs_;              // of the current evaluation, or since the last record
  typename S::Batch latest_batch_;  // keeps latest_rows_ alive
  std::vector<Row*> latest_rows_;   // rows of the step just trained, valid until the next one
};

}  // namespace rlalgo::trainer
