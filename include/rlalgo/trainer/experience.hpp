// The stage between sampler and trainer: a batch that owns its rows and arrives complete.
//
//   sampler.next(step) → rewards → advantages (Rewarded samplers) → log-probs that the loss reads as data
//                      → rows of no use left out → the counts of this rank
//
// The trainer sees rows through `const` and trains on them; what a row is to keep of its training goes through
// `remember`. Which of these a batch needs follows from the sampler and its rows, never from the name of a method.
// Evaluation takes its batches through the same stage.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/core/clock.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/trainer/advantages.hpp>
#include <rlalgo/trainer/rollout_sample.hpp>

namespace rlalgo::trainer {

template <class Row>
struct Experience {
  std::vector<std::vector<const Row*>> parts;  // micro-batches to train on; one may be empty
  std::vector<const Row*> rows;                // all rows of the step, those that are not trained on included
  loss::Counts counts;                         // of `rows`, this rank's
  std::vector<std::shared_ptr<void>> owners;   // of what the pointers point into
  core::Metrics metrics;
  std::vector<std::pair<std::string, double>> seconds;  // data or generate, reward, score; for time/<name>
  std::vector<std::string> warnings;
  // Both are called while the experience lives.
  // Keeps what part number `part` was trained with, log_prob [N]; empty: nothing is kept.
  std::function<void(std::size_t part, const tensor::Tensor& log_prob)> remember;
  // Up to `limit` rows for samples.jsonl; empty: rows are not shown.
  std::function<std::vector<run::Sample>(std::size_t limit)> samples;
};

// Rewards of rows become advantages; rows without rewards have none, so neither part belongs there.
template <class A, class G, class S>
concept AdvantageFor = (sampler::Rewarded<S> && advantage::AdvantageEstimator<A> &&
                        aggregation::AggregationFor<G, A>) ||
                       (!sampler::Rewarded<S> && std::same_as<A, advantage::None> &&
                        std::same_as<G, aggregation::None>);

namespace detail {

// The micro-batches without idle rows; skipped_zero_adv_rows, the share of rows left out, and skipped_zero_adv_batches, of
// micro-batches. Where a surrogate is all there
// is to the loss, the gradient stays the same: the counts it is divided by are those of all rows. When nothing would
// remain, one row does, so that every parameter has its (zero) gradient.
template <sampler::IdleRows R>
[[nodiscard]] std::vector<std::vector<typename R::Row*>> without_idle_rows(
    const std::vector<std::vector<typename R::Row*>>& parts, core::Metrics& metrics) {
  std::vector<std::vector<typename R::Row*>> out(parts.size());
  typename R::Row* any = nullptr;
  double rows = 0, kept = 0;
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (typename R::Row* row : parts[p]) {
      ++rows;
      if (any == nullptr) any = row;
      if (R::idle(*row)) continue;
      ++kept;
      out[p].push_back(row);
    }
  if (kept == 0 && any != nullptr) out.front().push_back(any);
  metrics.mean("skipped_zero_adv_rows", rows - kept, rows);
  metrics.mean(
      "skipped_zero_adv_batches",
      static_cast<double>(std::count_if(out.begin(), out.end(), [](const auto& part) { return part.empty(); })),
      static_cast<double>(out.size()));
  return out;
}

}  // namespace detail

template <loss::Loss L, sampler::Sampler S, class A, class G>
requires AdvantageFor<A, G, S>
class ExperienceStage {
  using Rows = typename S::Rows;
  using Row = typename Rows::Row;

 public:
  struct Config {
    double temperature = 1.0;        // of the scored distribution
    std::size_t rows_per_pass = 8;   // when fresh generations are scored
    bool corrects_sampling = false;  // loss::corrects_sampling of the loss
    bool skip_idle = false;          // training leaves out rows of no use to the loss (sampler::IdleRows)
  };
  enum class Purpose { training, evaluation };

  ExperienceStage(Config config, std::shared_ptr<model::Policy> policy, std::shared_ptr<model::Policy> reference,
                  A estimator, G aggregation)
      : config_(config),
        policy_(std::move(policy)),
        reference_(std::move(reference)),
        estimator_(std::move(estimator)),
        aggregation_(std::move(aggregation)) {}

  // Whether log-probs of a reference are read, by the loss or by the aggregation.
  [[nodiscard]] bool reads_reference() const {
    return L::needs.reference_log_prob || aggregation::needs_divergence(aggregation_);
  }

  // The batch of optimizer step `step`, complete for a loss of type L; `version` is that of the policy's weights.
  [[nodiscard]] Experience<Row> next(S& sampler, std::int64_t step, std::int64_t version, Purpose purpose) const {
    const core::Stopwatch watch;
    auto batch = sampler.next(step);
    Experience<Row> out;
    out.seconds = std::move(batch.seconds);
    if (out.seconds.empty()) out.seconds = {{"data", watch.seconds()}};
    out.metrics = std::move(batch.metrics);
    out.warnings = std::move(batch.warnings);
    out.owners = std::move(batch.owners);

    const core::Stopwatch scoring;
    const sampler::Scorers scorers{*policy_, reference_.get(), config_.temperature, version, config_.corrects_sampling};
    if constexpr (sampler::Rewarded<S>)
      settle(batch, aggregation_, estimator_, scorers,
             {.rows_per_pass = config_.rows_per_pass,
              .reference = L::needs.reference_log_prob,
              .old = L::needs.old_log_prob},
             out.metrics);
    auto parts = batch.parts;
    if constexpr (sampler::IdleRows<Rows>)
      if (config_.skip_idle && purpose == Purpose::training)
        parts = detail::without_idle_rows<Rows>(parts, out.metrics);
    if constexpr (sampler::CompletedRows<Rows>)
      for (const auto& part : parts) Rows::complete(part, scorers, L::needs, out.warnings);
    for (const auto& part : batch.parts) {
      out.counts.micro_batches += 1;
      Rows::count(part, L::needs, out.counts);
      out.rows.insert(out.rows.end(), part.begin(), part.end());
    }
    out.seconds.emplace_back("score", scoring.seconds());

    for (const auto& part : parts) out.parts.emplace_back(part.begin(), part.end());
    if constexpr (sampler::RememberingRows<Rows> && L::needs.old_log_prob)
      out.remember = [parts = std::move(parts)](std::size_t part, const tensor::Tensor& log_prob) {
        Rows::remember(parts[part], log_prob);
      };
    if constexpr (sampler::Rewarded<S>)
      out.samples = [rows = out.rows, names = std::move(batch.reward_names)](std::size_t limit) {
        std::vector<run::Sample> samples;
        for (const data::Rollout* row : rows)
          if (samples.size() < limit) samples.push_back(to_sample(*row, names));
        return samples;
      };
    return out;
  }

 private:
  Config config_;
  std::shared_ptr<model::Policy> policy_;
  std::shared_ptr<model::Policy> reference_;
  A estimator_;
  G aggregation_;
};

}  // namespace rlalgo::trainer
