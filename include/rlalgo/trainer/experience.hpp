// The stage between sampler and trainer: a batch that owns its rows and arrives complete.
//
//   sampler.next(step) → rewards → advantages (Rewarded samplers) → log-probs that the loss reads as data
//                      → all rows of the samples, those of no use left out → the micro-batches of this rank, and their counts
//
// Every rank has all rows of the step and their advantages; it completes, counts and trains its share of the micro-batches,
// which is the same on all ranks of a context group (distributed/world.hpp).
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
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/core/activity.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/rollout_sample.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/trainer/advantages.hpp>

namespace rlalgo::trainer {

namespace detail {

// What a step was skipped of, when its micro-batches come one after the other.
struct Skipped {
  double rows = 0, kept = 0, batches = 0, empty = 0;
  void report(core::Metrics& metrics) const {
    metrics.mean("skipped_zero_adv_rows", rows - kept, rows);
    metrics.mean("skipped_zero_adv_batches", empty, batches);
  }
};

// A step whose rows come one micro-batch after the other, as far as they have come.
template <class Row>
struct OpenStep {
  sampler::RolloutBatch batch;
  sampler::Scorers scorers;
  bool skips_idle = false;
  std::size_t settled = 0;  // of batch.fresh
  loss::Counts counts = {};
  core::Metrics metrics = {};
  double scoring = 0;  // seconds
  Skipped skipped = {};
  std::vector<std::vector<Row*>> parts = {};
  std::vector<std::shared_ptr<void>> rows = {};  // that the parts point into
};

}  // namespace detail

template <class Row>
struct Experience {
  std::vector<std::vector<const Row*>> parts;  // micro-batches to train on, this rank's; one may be empty
  std::size_t first_part = 0;                  // number of parts[0] among those of all ranks
  // By part: log-probs of the reference [N] where they were computed, which no host has read; undefined: rows bring them.
  std::vector<tensor::Tensor> references = {};
  std::vector<const Row*> rows;               // all rows of the step, on all ranks, those not trained on included
  loss::Counts counts;                        // of the rows of this rank
  std::vector<std::shared_ptr<void>> owners;  // of what the pointers point into
  core::Metrics metrics;
  std::vector<std::pair<std::string, double>> seconds;  // data or generate, reward, score; for time/<name>
  std::vector<std::string> warnings;
  // Of a step that is trained on while its rows are made: ExperienceStage::pull adds parts[pulled]. Meanwhile micro-batches are
  // counted, rows are assumed to be one for each sample, and tokens to be one in all: what a loss of loss::TokenShare::all or
  // rows makes with it is scaled when all is known. With the last part everything else is there, too. Of several ranks each
  // asks for all parts, and has those that are not its own empty. Null: everything is there.
  std::shared_ptr<detail::OpenStep<Row>> open = {};
  [[nodiscard]] bool is_open() const { return open != nullptr; }
  // Both are called while the experience lives.
  // Keeps what part number `part`, among those of all ranks, was trained with, log_prob [N]; empty: nothing is kept.
  std::function<void(std::size_t part, const tensor::Tensor& log_prob)> remember;
  // Up to `limit` rows for samples.jsonl; empty: rows are not shown.
  std::function<std::vector<run::Sample>(std::size_t limit)> samples;

  [[nodiscard]] std::vector<const Row*> own_rows() const {
    std::vector<const Row*> out;
    for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
    return out;
  }
};

// Rewards of rows become advantages; rows without rewards have none, so neither part belongs there.
template <class A, class G, class S>
concept AdvantageFor = (sampler::Rewarded<S> && advantage::AdvantageEstimator<A> &&
                        aggregation::AggregationFor<G, A>) ||
                       (!sampler::Rewarded<S> && std::same_as<A, advantage::None> &&
                        std::same_as<G, aggregation::None>);

namespace detail {

// A micro-batch without idle rows; of the `last` one row remains when no other did.
template <sampler::IdleRows R>
[[nodiscard]] std::vector<typename R::Row*> without_idle_rows(const std::vector<typename R::Row*>& part, bool last,
                                                              Skipped& skipped) {
  std::vector<typename R::Row*> out;
  for (typename R::Row* row : part)
    if (!R::idle(*row)) out.push_back(row);
  skipped.rows += static_cast<double>(part.size());
  skipped.kept += static_cast<double>(out.size());
  if (last && skipped.kept == 0 && !part.empty()) out.push_back(part.front());
  skipped.batches += 1;
  skipped.empty += out.empty() ? 1 : 0;
  return out;
}

// The micro-batches without idle rows; skipped_zero_adv_rows, the share of rows left out, and skipped_zero_adv_batches, of
// micro-batches. Where a surrogate is all there is to the loss, the gradient stays the same: the counts it is divided by
// are those of all rows. When nothing would remain, one row does, so that every parameter has its (zero) gradient.
template <sampler::IdleRows R>
[[nodiscard]] std::vector<std::vector<typename R::Row*>> without_idle_rows(
    const std::vector<std::vector<typename R::Row*>>& parts, core::Metrics& metrics) {
  Skipped skipped;
  std::vector<std::vector<typename R::Row*>> out;
  for (const auto& part : parts) out.push_back(without_idle_rows<R>(part, false, skipped));
  const auto some = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return !part.empty(); });
  if (skipped.kept == 0 && some != parts.end()) {
    out.front().push_back(some->front());
    --skipped.empty;
  }
  skipped.report(metrics);
  return out;
}

}  // namespace detail

template <loss::Loss L, sampler::Sampler S, class A, class G>
requires AdvantageFor<A, G, S>
class ExperienceStage {
  using Rows = typename S::Rows;
  using Row = typename Rows::Row;
  using Sample = sampler::SampleOf<Rows>;
  using Owners = std::vector<std::shared_ptr<void>>;

 public:
  struct Config {
    double temperature = 1.0;        // of the scored distribution
    std::size_t rows_per_pass = 8;   // when fresh generations are scored
    bool corrects_sampling = false;  // loss::corrects_sampling of the loss
    bool skip_idle = false;          // training leaves out rows of no use to the loss (sampler::IdleRows)
    std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
    data::Decode decode = nullptr;  // of what is shown of conversations; null: they are shown as one text
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

  // `version` is that of the policy's weights.
  [[nodiscard]] sampler::Scorers scorers(std::int64_t version) const {
    return {*policy_, reference_.get(), config_.temperature, version, config_.corrects_sampling};
  }

  // The batch of optimizer step `step`, complete for a loss of type L; `version` is that of the policy's weights.
  [[nodiscard]] Experience<Row> next(S& sampler, std::int64_t step, std::int64_t version, Purpose purpose) const {
    const os::Stopwatch watch;
    auto batch = sampler.next(step);
    Experience<Row> out;
    out.seconds = std::move(batch.seconds);
    if (out.seconds.empty()) out.seconds = {{"data", watch.seconds()}};
    out.metrics = std::move(batch.metrics);
    out.warnings = std::move(batch.warnings);
    out.owners = std::move(batch.owners);

    const core::Activity log_probs("scoring");
    const os::Stopwatch scoring;
    const sampler::Scorers scorers = this->scorers(version);
    if constexpr (sampler::Rewarded<S>) {
      if (batch.is_open()) return opened(std::move(batch), scorers, purpose);
      settle(batch, aggregation_, estimator_, scorers, settling(), out.metrics);
    }
    std::vector<std::vector<Row*>> all;
    for (auto& part : batch.parts) all.push_back(rows_of(std::move(part), out.owners));
    auto parts = all;
    if constexpr (sampler::IdleRows<Rows>)
      if (config_.skip_idle && purpose == Purpose::training)
        parts = detail::without_idle_rows<Rows>(parts, out.metrics);
    const distributed::Share own = config_.world->share_of_rows(parts.size());
    out.first_part = own.begin;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      out.rows.insert(out.rows.end(), all[p].begin(), all[p].end());
      if (p < own.begin || p >= own.end) continue;
      out.references.push_back(complete_rows(parts[p], scorers, out.warnings));
      out.counts.micro_batches += 1;
      Rows::count(all[p], L::needs, out.counts);
      out.parts.emplace_back(parts[p].begin(), parts[p].end());
    }
    out.seconds.emplace_back("score", scoring.seconds());
    if constexpr (sampler::RememberingRows<Rows> && L::needs.old_log_prob)
      out.remember = [parts = std::move(parts)](std::size_t part, const tensor::Tensor& log_prob) {
        Rows::remember(parts[part], log_prob);
      };
    if constexpr (sampler::Rewarded<S>)
      out.samples = samples_of(out.rows, std::move(batch.reward_names), config_.decode);
    return out;
  }

  // The next part of an experience that is open, complete for the loss. On all ranks, for all parts.
  void pull(S& sampler, Experience<Row>& out) const requires sampler::Rewarded<S> {
    const c10::AutoGradMode no_gradient(false);
    detail::OpenStep<Row>& open = *out.open;
    const std::size_t part = open.batch.pulled;
    sampler.pull(open.batch);
    complete(open, part, out);
    if (open.batch.is_open()) return;
    close(open, out);
    out.open = nullptr;
  }

 private:
  [[nodiscard]] Settling settling() const {
    return {.rows_per_pass = config_.rows_per_pass,
            .reference = L::needs.reference_log_prob,
            .old = L::needs.old_log_prob,
            .world = config_.world.get()};
  }

  // The rows of some samples; `owners` gets who owns them, where the samples themselves do not.
  [[nodiscard]] static std::vector<Row*> rows_of(std::vector<Sample*> samples, Owners& owners) {
    if constexpr (sampler::SampledRows<Rows>) {
      const auto rows = std::make_shared<std::vector<Row>>(Rows::rows_of(samples));
      std::vector<Row*> out;
      for (Row& row : *rows) out.push_back(&row);
      owners.push_back(rows);
      return out;
    } else {
      return samples;
    }
  }

  [[nodiscard]] Experience<Row> opened(sampler::RolloutBatch batch, const sampler::Scorers& scorers,
                                       Purpose purpose) const {
    Experience<Row> out;
    out.parts.resize(batch.parts.size());
    out.references.resize(batch.parts.size());
    for (std::size_t p = 0; p < batch.parts.size(); ++p) {
      if (!is_own(p)) continue;
      out.counts.rows += static_cast<double>(batch.parts[p].size());
      out.counts.micro_batches += 1;
    }
    if (config_.world->group() == 0) out.counts.tokens = 1;  // of all ranks together
    out.open = std::make_shared<detail::OpenStep<Row>>(
        detail::OpenStep<Row>{.batch = std::move(batch),
                              .scorers = scorers,
                              .skips_idle = config_.skip_idle && purpose == Purpose::training});
    return out;
  }

  // Fills in what a loss reads as data; what Experience::references says of these rows.
  [[nodiscard]] static tensor::Tensor complete_rows(const std::vector<Row*>& rows, const sampler::Scorers& scorers,
                                                    sampler::Warnings& warnings) {
    loss::Needs needs = L::needs;
    tensor::Tensor reference;
    if constexpr (sampler::ReferencedRows<Rows>) {
      needs.reference_log_prob = false;
      const std::vector<const Row*> view(rows.begin(), rows.end());
      if (!rows.empty()) reference = Rows::reference(view, scorers, L::needs);
    }
    if constexpr (sampler::CompletedRows<Rows>) Rows::complete(rows, scorers, needs, warnings);
    return reference;
  }

  // Micro-batches that come one after the other are dealt to the ranks in turn, so that none waits for another's.
  [[nodiscard]] bool is_own(std::size_t part) const {
    return static_cast<int>(part % static_cast<std::size_t>(config_.world->groups())) == config_.world->group();
  }

  void complete(detail::OpenStep<Row>& open, std::size_t part, Experience<Row>& out) const {
    const bool last = !open.batch.is_open();
    const os::Stopwatch scoring;
    const std::span<const sampler::FreshEpisodes> fresh = std::span(open.batch.fresh).subspan(open.settled);
    settle_fresh(fresh, aggregation_, estimator_, open.scorers, settling(), open.metrics);
    open.settled = open.batch.fresh.size();
    if (last) settle_later(open.batch, aggregation_, open.scorers, settling());
    const std::vector<Row*> rows = rows_of(open.batch.parts[part], open.rows);
    std::vector<Row*> trained = rows;
    if constexpr (sampler::IdleRows<Rows>)
      if (open.skips_idle) trained = detail::without_idle_rows<Rows>(rows, last, open.skipped);
    if (is_own(part)) {
      out.references[part] = complete_rows(trained, open.scorers, out.warnings);
      open.counts.micro_batches += 1;
      Rows::count(rows, L::needs, open.counts);
      out.parts[part].assign(trained.begin(), trained.end());
    }
    out.rows.insert(out.rows.end(), rows.begin(), rows.end());
    out.owners = open.batch.owners;
    out.owners.insert(out.owners.end(), open.rows.begin(), open.rows.end());
    open.parts.push_back(std::move(trained));
    open.scoring += scoring.seconds();
    out.seconds = open.batch.seconds;
    out.seconds.emplace_back("score", open.scoring);
  }

  void close(detail::OpenStep<Row>& open, Experience<Row>& out) const {
    out.counts = open.counts;
    out.metrics = std::move(open.batch.metrics);
    out.metrics.merge(open.metrics);
    if (open.skipped.batches > 0) open.skipped.report(out.metrics);
    out.warnings.insert(out.warnings.begin(), open.batch.warnings.begin(), open.batch.warnings.end());
    if constexpr (sampler::RememberingRows<Rows> && L::needs.old_log_prob)
      out.remember = [parts = std::move(open.parts)](std::size_t part, const tensor::Tensor& log_prob) {
        Rows::remember(parts[part], log_prob);
      };
    out.samples = samples_of(out.rows, std::move(open.batch.reward_names), config_.decode);
  }

  [[nodiscard]] static std::function<std::vector<run::Sample>(std::size_t)> samples_of(
      std::vector<const Row*> rows, std::vector<std::string> names, data::Decode decode) requires sampler::Rewarded<S> {
    return [rows = std::move(rows), names = std::move(names), decode = std::move(decode)](std::size_t limit) {
      std::vector<run::Sample> samples;
      for (const Row* row : rows)
        if (samples.size() < limit) samples.push_back(sampler::to_sample(*row, names, decode));
      return samples;
    };
  }

  Config config_;
  std::shared_ptr<model::Policy> policy_;
  std::shared_ptr<model::Policy> reference_;
  A estimator_;
  G aggregation_;
};

}  // namespace rlalgo::trainer
