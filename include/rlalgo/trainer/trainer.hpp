// The trainer: one optimizer step of any composition of loss, estimator, sampler, aggregation and sync policy.
//
//   batch  ← sampler.next(step)                     rollouts, already in micro-batches
//   A      ← aggregation(estimator, rewards)        host
//   refs   ← what Loss::needs says                  no gradient
//   counts ← world.sum(counts of this rank)         denominators are known before any backward
//   for each micro-batch: loss(score(part), counts).backward()
//   world.sum(gradients); clip; optimizer; schedule; sync.publish(version)
//
// Contains no algorithm. Because denominators are global counts and gradients are summed, k micro-batches and w ranks give
// the gradient of one. Loop control, logging, checkpoints and resume are in trainer/loop.hpp.
//
// Errors: [rlalgo.trainer.*] see loop.hpp and checkpoint.hpp; a loss or gradient that is not finite stops the run before
// the weights are touched.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/clock.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/trainer/collate.hpp>
#include <rlalgo/trainer/loop.hpp>
#include <rlalgo/trainer/prepare.hpp>
#include <rlalgo/trainer/step.hpp>

namespace rlalgo::trainer {

// What is independent of the method.
struct TrainerConfig {
  double temperature = 1.0;      // of the scored distribution; the generator's, so that the ratio compares like with like
  double max_grad_norm = 1.0;    // global L2 norm; 0 = no clipping
  double steps_per_epoch = 0.0;  // optimizer steps that make one pass over the data; 0 = unknown, epoch stays 0
  std::int64_t score_rows = 8;   // rows per forward pass when scoring without gradient
  optim::AdamWConfig adamw;
  optim::ScheduleConfig schedule;
  LoopConfig loop;
};

template <class L, class S>
concept SameRows = loss::Loss<L> && sampler::Sampler<S> && (L::rows == S::rows);

template <class L, class A, class S, class G, class Y>
  requires loss::Loss<L> && advantage::AdvantageEstimator<A> && sampler::Sampler<S> && SameRows<L, S> &&
           aggregation::AggregationFor<G, A> && sync::SyncPolicyFor<Y, S>
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
    std::shared_ptr<S> evaluation = nullptr;  // batches of a held-out split
    std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
  };

  Trainer(TrainerConfig config, Parts parts)
      : config_(std::move(config)),
        parts_(std::move(parts)),
        parameters_(parts_.policy->parameters()),
        optimizer_(parameters_, config_.adamw),
        schedule_(config_.schedule) {
    if (L::needs.reference_log_prob && !parts_.reference)
      core::raise("trainer", 1, {.what = "the loss compares with a reference model, but there is none",
                                 .remedy = "pass Parts::reference, or use a loss without a KL penalty"});
    parts_.sync.publish(version_);
  }

  // Optimizer step number `index` (0-based): one update of the weights.
  StepResult step(std::int64_t index) {
    StepResult result;
    core::Stopwatch watch;
    typename S::Batch batch = parts_.sampler->next(index);
    result.seconds = {{"generate", batch.generation_seconds}, {"reward", batch.reward_seconds}};
    result.metrics.merge(batch.metrics);

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
    require_finite(index + 1, result.loss, result.grad_norm);
    result.learning_rate = schedule_(index);
    optimizer_.step(result.learning_rate);
    optimizer_.zero_grad();
    parts_.sync.publish(++version_);
    result.seconds.emplace_back("optimizer", optimizer_watch.seconds());

    if (config_.steps_per_epoch > 0) result.epoch = static_cast<double>(index + 1) / config_.steps_per_epoch;
    for (const auto& part : batch.parts)
      for (const auto* row : part)
        result.tokens += static_cast<std::int64_t>(row->prompt_ids.size() + row->completion_ids.size());
    return result;
  }

  [[nodiscard]] std::int64_t version() const noexcept { return version_; }
  [[nodiscard]] const TrainerConfig& config() const noexcept { return config_; }

 private:
  void prepare(typename S::Batch& batch, core::Metrics& metrics) {
    if constexpr (S::generates) {
      for (const auto& generation : batch.fresh)
        assign_advantages(parts_.aggregation, parts_.estimator, *generation, metrics);
      const auto chunk = static_cast<std::size_t>(config_.score_rows);
      if constexpr (L::needs.reference_log_prob) {
        const auto rows = all_rollouts(batch);
        score_columns(*parts_.reference, rows, chunk, config_.temperature,
                      [](data::Rollout& r) -> auto& { return r.reference_log_probs; });
      }
      if constexpr (L::needs.old_log_prob) {
        const auto rows = trained_later(batch);
        score_columns(*parts_.policy, rows, chunk, config_.temperature,
                      [](data::Rollout& r) -> auto& { return r.old_log_probs; });
      }
    }
  }

  loss::Counts global_counts(const typename S::Batch& batch) {
    loss::Counts counts = count(batch.parts);
    double totals[] = {counts.rows, counts.tokens, counts.micro_batches};
    parts_.world->sum(totals);
    return {totals[0], totals[1], totals[2]};
  }

  // Forward and backward of every micro-batch; returns the loss of the step on this rank.
  double accumulate(typename S::Batch& batch, const loss::Counts& counts, core::Metrics& metrics) {
    double total = 0.0;
    for (const auto& part : batch.parts) {
      const auto views = sequences(part);
      const model::Scores scores = parts_.policy->score(
          model::build_tree(views), {.temperature = config_.temperature, .entropy = true, .entropy_gradient = L::needs.entropy});
      const loss::Result result = parts_.loss(collate(part, scores, L::needs), counts);
      if (result.value.requires_grad()) result.value.backward();
      if constexpr (L::needs.old_log_prob) remember_old(part, scores.log_prob);
      metrics.merge(result.metrics);
      total += result.value.template item<double>();
    }
    return total;
  }

  TrainerConfig config_;
  Parts parts_;
  std::vector<model::Parameter> parameters_;
  optim::AdamW optimizer_;
  optim::Schedule schedule_;
  std::int64_t version_ = 0;  // number of updates the weights have seen
};

}  // namespace rlalgo::trainer
