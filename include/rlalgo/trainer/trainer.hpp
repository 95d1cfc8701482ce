// The trainer: one optimizer step of any composition of loss, estimator, sampler, aggregation and sync policy.
//
//   sync.publish(version)                           where the sampler is about to ask its generator
//   batch  ← experience.next(step)                  owned rows in micro-batches: advantages, log-probs, counts
//   counts ← world.sum(counts of this rank)         denominators are known before any backward
//   for each micro-batch: loss(score(part), counts).backward()
//   world.sum(gradients); clip; optimizer; schedule
//
// On a device whose optimizer clips by itself the host waits once a step: it reads losses, metrics, log-probs to keep and the norm in one
// copy when the update is under way. A loss or norm that is not finite has then left the weights as they were.
//
// Contains no algorithm and no kind of rows: those are the sampler's (sampler/rows.hpp), and what makes a batch complete
// is the stage's (trainer/experience.hpp). Because denominators are global counts and gradients are summed, k
// micro-batches and w ranks give the gradient of one. Every rank computes its share of the micro-batches; rank 0 leads the
// run (trainer/led_run.hpp). Loop control, logging, checkpoints and resume are in run/loop.hpp.
//
// Errors: [rlalgo.trainer.20] the loss needs a reference and there is none; [.22] the schedule moves a momentum that the optimizer does not have; [.23] it follows evaluations, and
// there are none; [.25] a checkpoint has a parameter of another shape; [.26] evaluations do not have the metric that the
// schedule follows; [rlalgo.run.9] a loss or gradient that is not finite, before the weights are touched; the others of
// offending_rows.hpp, loop.hpp and checkpoint.hpp.
#pragma once

#include <array>
#include <cmath>
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
#include <rlalgo/core/activity.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/step.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/threads.hpp>
#include <rlalgo/trainer/companion.hpp>
#include <rlalgo/trainer/detail/asynchronous_watch.hpp>
#include <rlalgo/trainer/detail/composition.hpp>
#include <rlalgo/trainer/detail/computed_step.hpp>
#include <rlalgo/trainer/detail/plateau_json.hpp>
#include <rlalgo/trainer/experience.hpp>
#include <rlalgo/trainer/led_run.hpp>
#include <rlalgo/trainer/offending_rows.hpp>
#include <rlalgo/trainer/placement.hpp>
#include <rlalgo/trainer/streaming.hpp>
#include <rlalgo/trainer/trainer_config.hpp>

namespace rlalgo::trainer {

template <class L, class A, class S, class G, class Y, class O = optim::AdamW>
class Trainer {
  static_assert(detail::Composition<L, A, S, G, Y>::fits, "trainer::Trainer: the parts do not fit, see above");
  using Rows = typename S::Rows;
  using Row = typename Rows::Row;
  using Batch = Experience<Row>;
  using Stage = ExperienceStage<L, S, A, G>;
  using Computed = detail::ComputedStep<Row>;

 public:
  using Config = BasicTrainerConfig<O>;
  // The parts of a run. `reference` is required exactly when the loss needs reference log-probs.
  struct Parts {
    std::shared_ptr<model::Policy> policy;
    L loss;
    A estimator;
    std::shared_ptr<S> sampler;
    G aggregation;
    Y sync;
    std::shared_ptr<model::Policy> reference = nullptr;
    std::vector<std::shared_ptr<Companion>> companions = {};  // a synced reference, controllers
    // Batches of a held-out split; a sampler without steps() has no end to evaluate up to, and takes nullptr only.
    std::conditional_t<sampler::Finite<S>, std::shared_ptr<S>, std::nullptr_t> evaluation = nullptr;
    std::function<void(const std::filesystem::path&)> save_model = {};   // default: the parameters in model.safetensors
    std::function<void(const std::filesystem::path&)> save_output = {};  // for others to open; default: save_model
    // Shown every training batch when it is complete, with the number of its step (from 1); may add to its metrics.
    std::function<void(std::int64_t step, Batch&)> on_experience = {};
    data::Decode decode = data::ids_as_text;  // for pairs.json, offending rows, shown blocks and conversations
    std::shared_ptr<distributed::World> world = std::make_shared<distributed::World>();
    std::shared_ptr<Placement> placement = {};  // default: every rank has the whole policy
  };

  Trainer(Config config, Parts parts)
      : config_(std::move(config)),
        parts_(held(std::move(parts))),
        trained_(optim::grouped(config_.groups, parts_.policy->parameters(), parts_.placement->parameters())),
        numbers_(detail::numbers_of(trained_.parameters)),
        optimizer_(trained_.parameters, config_.optimizer),
        schedule_(config_.schedule, config_.loop.max_steps),
        experience_({.temperature = config_.temperature,
                     .rows_per_pass = static_cast<std::size_t>(config_.score_rows),
                     .corrects_sampling = loss::corrects_sampling(parts_.loss),
                     .skip_idle = config_.skip_zero_advantages,
                     .world = parts_.world,
                     .decode = parts_.decode},
                    parts_.policy, parts_.reference, parts_.estimator, parts_.aggregation) {
    if (experience_.reads_reference() && !parts_.reference && !brings_reference(*parts_.sampler))
      core::raise("trainer", 20,
                  {.what = "the loss compares with a reference model, but there is none",
                   .remedy = "pass Parts::reference, or use a loss without a KL penalty"});
    if (!optim::HasMomentum<O> && schedule_.moves_momentum())
      core::raise_usage(
          "trainer", 22,
          {.what = "the schedule moves the optimizer's momentum, and this optimizer has none to set",
           .found = config_.schedule.name,
           .remedy = "give the optimizer a set_momentum(double), or set one_cycle.cycle_momentum = false"});
    if (schedule_.observes() && parts_.evaluation == nullptr)
      core::raise_usage("trainer", 23,
                        {.what = "the schedule follows evaluations, and there is nothing to evaluate on",
                         .found = config_.schedule.name,
                         .remedy = "pass Parts::evaluation, or take another schedule"});
    parts_.placement->require_divisible(optimizer_.state(), optim::hooks_of<O>().needs_whole_parameters);
    share_contexts(parts_.world, config_.dealing, {parts_.policy, parts_.reference});
    mean_elements_ = detail::mean_elements(trained_.parameters);
    optim::set_rates(optimizer_, trained_.rates);
  }

  // Optimizer step number `index` (0-based): one update of the weights.
  run::StepResult step(std::int64_t index) {
    run::StepResult result;
    parts_.world->enter(index + 1);
    watch_ = {};
    const double published = watch_.published = publish_for(*parts_.sampler, index);
    Batch batch = experience_.next(*parts_.sampler, index, version_, Stage::Purpose::training);
    const bool open = batch.is_open();
    if (!open && parts_.on_experience) parts_.on_experience(index + 1, batch);
    if constexpr (sync::hooks_of<Y>().training_begins) parts_.sync.training_begins();

    os::Stopwatch train_watch;
    loss::Counts counts = global_counts(batch.counts);
    Computed computed = compute(batch, counts);
    core::Metrics trained;
    const bool reads_last = detail::clips_on_device(optimizer_, *parts_.placement);
    if (!reads_last)
      result.loss = together(*parts_.world, read(batch, computed, counts, trained), trained, latest_norm_);
    double training = train_watch.seconds(), factor = 1.0;
    if (open) {
      for (const auto& [name, seconds] : batch.seconds) training -= seconds;  // between the micro-batches
      const loss::Counts assumed = std::exchange(counts, global_counts(batch.counts));
      factor = rescaling(parts_.loss, assumed, counts);
      if (parts_.on_experience) parts_.on_experience(index + 1, batch);
    }

    const core::Activity updating("updating the weights");
    os::Stopwatch optimizer_watch;
    const auto limit = tensor::ThreadLimit::of_updates(mean_elements_);
    result.learning_rate = schedule_(index);
    if constexpr (optim::HasMomentum<O>)
      if (const auto momentum = schedule_.momentum(index)) optimizer_.set_momentum(*momentum);
    double norm = 0.0;
    if (reads_last) {
      optim::DeviceClip clip = parts_.placement->reduce_on_device(config_.max_grad_norm, factor, computed.losses());
      detail::update(optimizer_, result.learning_rate, &clip);
      result.loss = together(*parts_.world, read(batch, computed, counts, trained, &clip.norm), trained, latest_norm_);
      norm = clip.norm.template item<double>();
    } else {
      norm = parts_.placement->reduce_gradients(config_.max_grad_norm, factor);
    }
    latest_norm_ = result.grad_norm = norm;
    result.loss *= factor;
    if (!std::isfinite(norm)) blame_together("gradient", batch.own_rows(), counts);
    run::require_finite(index + 1, result.loss, norm);
    if (!reads_last) detail::update(optimizer_, result.learning_rate);
    result.seconds = std::move(batch.seconds);
    if (published > 0) result.seconds.emplace_back("publish", published);
    result.seconds.emplace_back("train", training);
    result.metrics = std::move(batch.metrics);
    result.metrics.merge(trained);
    result.warnings = std::move(batch.warnings);
    parts_.placement->updated();
    ++version_;
    for (const auto& companion : parts_.companions) companion->after_step(index + 1, result.metrics);
    result.seconds.emplace_back("optimizer", optimizer_watch.seconds());
    watch_.tell_device(config_.peak_flops, training + result.seconds.back().second, *parts_.placement, result.metrics);
    for (auto& one : parts_.placement->seconds()) result.seconds.push_back(std::move(one));

    result.epoch = config_.epoch_after(index + 1);
    for (const Row* row : batch.rows) result.tokens += Rows::tokens(*row);
    watch_.template tell<Rows>(*parts_.sampler, batch.rows, counts.tokens, result.metrics);
    latest_ = std::move(batch);
    if (parts_.evaluation == nullptr) share_summary();
    return result;
  }

  // Trains from the start, or from run::LoopConfig::resume_from_checkpoint, to the end or to an interruption. Observers are
  // rank 0's.
  run::Outcome run(std::span<run::Observer* const> observers = {}) {
    distributed::World& world = *parts_.world;
    try {
      parts_.placement->require_same_start();
      if (world.rank() > 0) return follow(world, callbacks(), config_.loop.signals);
      run::Loop loop(config_.loop, led(world, callbacks(), parts_.placement->saves_together()));
      for (run::Observer* observer : observers) loop.observe(*observer);
      const run::Outcome outcome = loop.run();
      end(world, outcome);
      return outcome;
    } catch (const std::exception& error) {
      world.fail(error.what());
      throw;
    }
  }

  // Loss and metrics of one pass over the held-out split, without gradient. Draws are keyed, so evaluations of one run
  // differ by the weights only.
  [[nodiscard]] core::Metrics evaluate() requires sampler::Finite<S> {
    const c10::AutoGradMode no_gradient(false);
    S& split = *parts_.evaluation;
    const run::Json start = split.state();
    core::Metrics total;
    summary_ = {};
    for (std::int64_t index = 0; index < split.steps(); ++index) {
      publish_for(split, index);
      Batch batch = experience_.next(split, index, version_, Stage::Purpose::evaluation);
      total.merge(batch.metrics);
      const loss::Counts counts = global_counts(batch.counts);
      core::Metrics own;  // of a rank among others
      const bool alone = parts_.world->size() == 1;
      Computed passes = compute(batch, counts);
      const double loss = together(*parts_.world, read(batch, passes, counts, alone ? total : own), own, latest_norm_);
      total.merge(own);
      total.mean("loss", loss * counts.rows, counts.rows);
    }
    share_summary();
    split.restore(start);
    return total;
  }

  [[nodiscard]] bool has_evaluation() const { return parts_.evaluation != nullptr; }
  [[nodiscard]] bool has_companions() const { return !parts_.companions.empty(); }

  // Takes the trained parameters from a directory with safetensors. Of a checkpoint, `state` is what the run's owner
  // left in it: the version and what companions know come along, so that an evaluation repeats the run's. Weights are
  // copied into the tensors that the policy and its generator already share.
  void load_weights(const std::filesystem::path& directory, const run::Json* state = nullptr) {
    parts_.placement->load_weights(directory);
    if (state == nullptr) return;
    for (const auto& companion : parts_.companions) companion->restore(directory);
    version_ = state->at("version").template get<std::int64_t>();
  }

  [[nodiscard]] std::int64_t version() const noexcept { return version_; }
  [[nodiscard]] const Config& config() const noexcept { return config_; }

 private:
  run::Callbacks callbacks() {
    run::Callbacks callbacks;
    callbacks.train_step = [this](std::int64_t index) { return step(index); };
    if constexpr (sampler::Finite<S>)
      if (parts_.evaluation)
        callbacks.evaluate = [this] {
          core::Metrics metrics = evaluate();
          summarize("evaluation");
          if (schedule_.observes() && version_ > 0) schedule_.observe(observed(metrics));
          return metrics;
        };
    callbacks.save_model = [this](const std::filesystem::path& directory) { save_model(directory); };
    if (parts_.save_output)
      callbacks.save_output = [this](const std::filesystem::path& directory) {
        parts_.placement->save_model([&] { parts_.save_output(directory); });
      };
    callbacks.save_state = [this](const std::filesystem::path& directory) { return save_state(directory); };
    callbacks.restore_state = [this](const std::filesystem::path& directory, const run::Json& state) {
      restore_state(directory, state);
    };
    callbacks.samples = [this](std::size_t limit) {
      if constexpr (sampler::ShownRows<Rows>) return Rows::samples(latest_.rows, limit, parts_.decode);
      return latest_.samples ? latest_.samples(limit) : std::vector<run::Sample>();
    };
    callbacks.before_record = [this] {
      if (parts_.evaluation == nullptr) summarize("train");
    };
    return callbacks;
  }

  // Hands the weights over where step `index` of `sampler` asks a generator; the seconds it took to move them.
  double publish_for(const S& sampler, std::int64_t index) {
    if constexpr (sampler::Generates<S>) {
      if constexpr (sampler::hooks_of<S>().needs_weights)
        if (!sampler.needs_weights(index)) return 0.0;
      const sync::Published published = parts_.sync.publish(version_);
      return published.bytes > 0 ? published.seconds : 0.0;
    }
    return 0.0;
  }

  // Whether rows carry the log-probs of a reference that was asked before training.
  static bool brings_reference(const S& sampler) {
    if constexpr (sampler::hooks_of<S>().has_reference)
      return sampler.has_reference();
    else
      return false;
  }

  loss::Counts global_counts(loss::Counts counts) {
    std::array<double, loss::counts_fields.size()> totals{};
    for (std::size_t i = 0; i < totals.size(); ++i)
      totals[i] = parts_.world->leads_group() ? counts.*loss::counts_fields[i] : 0.0;
    parts_.world->sum(totals);
    for (std::size_t i = 0; i < totals.size(); ++i) counts.*loss::counts_fields[i] = totals[i];
    return counts;
  }

  // Forward of every micro-batch, and backward unless gradients are disabled. Nothing waits for the device.
  Computed compute(Batch& batch, const loss::Counts& counts) {
    Computed out;
    // The same after a resume, and on any rank.
    std::uint64_t draw = (static_cast<std::uint64_t>(version_) << 24U) + batch.first_part;
    // Up to the last one with rows that is trained on; parts that are still to come are not known to have any.
    std::size_t end = batch.is_open() || !c10::GradMode::is_enabled() ? 0 : batch.parts.size();
    while (end > 0 && batch.parts[end - 1].empty()) --end;
    const double balance_weight = config_.router_aux_loss_coef / std::max(counts.micro_batches, 1.0);
    core::Activity passes(c10::GradMode::is_enabled() ? "training" : "scoring",
                          static_cast<std::int64_t>(batch.parts.size()));
    for (std::size_t p = 0; p < batch.parts.size(); ++p) {
      if (p > 0) passes.advance();
      if constexpr (sampler::hooks_of<S>().streams)
        if (batch.is_open()) experience_.pull(*parts_.sampler, batch);
      const std::span<const Row* const> part = batch.parts[p];
      ++draw;
      if (part.empty()) continue;
      const model::TokenTree tree = Rows::tree(part, L::needs);
      const auto limit = tensor::ThreadLimit::of_products(parts_.policy->product_flops(tree.tokens()));
      if (p + 1 == end) parts_.placement->begin_last();
      const os::Stopwatch forward;
      detail::MicroBatch<Rows> batched(part, L::needs, numbers_);
      const model::Scores scores = batched.score(*parts_.policy, tree,
                                                 {.temperature = config_.temperature,
                                                  .entropy = true,
                                                  .entropy_gradient = loss::active_needs(parts_.loss).entropy,
                                                  .draw = draw,
                                                  .balance_weight = balance_weight,
                                                  .token_statistics = L::needs.token_statistics,
                                                  .collision = L::needs.collision});
      watch_.forward += forward.seconds();
      if (config_.peak_flops > 0 && c10::GradMode::is_enabled()) watch_.flops += parts_.policy->training_flops(tree);
      loss::Result result = parts_.loss(batched.collate(scores, batch.references[p]), counts);
      if (result.value.requires_grad()) result.value.backward();
      result.value = result.value.detach();
      if (scores.balance.defined()) {
        result.value = result.value.add(scores.balance.to(result.value.scalar_type()), balance_weight);
        result.metrics.mean("aux_loss", scores.balance, 1);
      }
      if (scores.replay_mismatch.defined()) result.metrics.mean("router/replay_mismatch", scores.replay_mismatch, 1);
      out.reported.merge(result.metrics);
      out.parts.push_back({part, p, scores.log_prob.detach(), std::move(result)});
    }
    return out;
  }

  // Every rank keeps what any was trained with: the row may be another rank's when it is trained again.
  void remember_of_others(const Batch& batch, const Computed& computed) {
    if (parts_.world->size() == 1) return;
    for (const PartColumn& other : columns_of_others(*parts_.world, computed.columns(batch.first_part)))
      batch.remember(other.part, other.log_prob);
  }

  // What the host keeps of the micro-batches, in their order, in one copy with `norm`; the loss of the step on this rank.
  double read(const Batch& batch, Computed& computed, const loss::Counts& counts, core::Metrics& metrics,
              tensor::Tensor* norm = nullptr) {
    computed.fetch(static_cast<bool>(batch.remember), norm);
    parts_.world->check_teams();  // what was computed with came from the other ranks
    if (batch.remember) remember_of_others(batch, computed);
    double total = 0.0;
    for (const auto& one : computed.parts) {
      const double value = one.result.value.template item<double>();
      if (c10::GradMode::is_enabled() && !std::isfinite(value)) blame("loss", one.rows, counts);
      if constexpr (sampler::SummarizedRows<Rows>) summary_.add(one.rows, one.result);
      if (batch.remember) batch.remember(batch.first_part + one.part, one.log_prob);
      total += value;
    }
    computed.reported.read_into(metrics);
    return total;
  }

  // Where rows can be blamed, the step stops here: those that offend are named and saved.
  void blame(const std::string& what, std::span<const Row* const> rows, const loss::Counts& counts) {
    if constexpr (sampler::BlamedRows<Rows>)
      raise_offending_rows<Rows>(what, find_offending<Rows>(parts_.loss, rows, counts, experience_.scorers(version_)),
                                 rows.size(), version_ + 1, config_.loop.output_dir, parts_.decode);
  }
  // The same where all ranks have come, each with its rows: the first that has something to blame.
  void blame_together(const std::string& what, std::span<const Row* const> rows, const loss::Counts& counts) {
    if constexpr (sampler::BlamedRows<Rows>) {
      const auto found = find_offending<Rows>(parts_.loss, rows, counts, experience_.scorers(version_));
      wait_for_turn_to_fail(*parts_.world, !found.empty());
      raise_offending_rows<Rows>(what, found, rows.size(), version_ + 1, config_.loop.output_dir, parts_.decode);
    }
  }

  // What the other ranks have seen becomes rank 0's.
  void share_summary() {
    if constexpr (sampler::SummarizedRows<Rows>) {
      if (parts_.world->size() == 1) return;
      const bool leads = parts_.world->rank() == 0, speaks = !leads && parts_.world->leads_group();
      const auto all = parts_.world->gather("summary", speaks ? summary_.state(parts_.decode).dump() : "null");
      for (const std::string& one : all)
        if (leads && one != "null") summary_.merge(run::Json::parse(one));
      if (!leads) summary_ = {};
    }
  }

  // Leaves the summary of the rows seen since the last call.
  void summarize(const std::string& split) {
    if constexpr (sampler::SummarizedRows<Rows>) {
      if (parts_.world->rank() == 0) summary_.write(config_.loop.output_dir, version_, split, parts_.decode);
      summary_ = {};
    }
  }

  // What the schedule follows; the name may be that of the record, with eval_.
  [[nodiscard]] double observed(const core::Metrics& metrics) const {
    std::string name = config_.schedule_metric, known;
    if (name.starts_with("eval_")) name.erase(0, 5);
    for (const auto& [key, value] : metrics.values()) {
      if (key == name) return value;
      known += (known.empty() ? "" : ", ") + key;
    }
    core::raise_usage("trainer", 26,
                      {.what = "the schedule follows a metric that evaluations do not have",
                       .found = config_.schedule_metric,
                       .expected = "one of " + known,
                       .remedy = "set metric_for_best_model to one of them"});
  }

  static Parts held(Parts parts) {
    if (parts.placement == nullptr) parts.placement = std::make_shared<WholePlacement>(*parts.policy, parts.world);
    return parts;
  }

  void save_model(const std::filesystem::path& directory) const {
    parts_.placement->save_model([&] {
      if (parts_.save_model) return parts_.save_model(directory);
      model::PendingTensors tensors;
      for (const model::Parameter& p : parts_.policy->parameters())
        tensors.push_back(model::pending(*parts_.policy, p.name, p.value));
      model::write_pending_safetensors(directory / "model.safetensors", std::move(tensors));
    });
  }

  run::Json save_state(const std::filesystem::path& directory) const {
    parts_.placement->save_optimizer(directory, optimizer_.state());
    if (parts_.world->rank() > 0) return {};
    for (const auto& companion : parts_.companions) companion->save(directory);
    run::Json state = {{"version", version_}, {"sampler", parts_.sampler->state()}};
    if constexpr (sampler::SummarizedRows<Rows>)
      if (parts_.evaluation == nullptr) state["summary"] = summary_.state(parts_.decode);
    if (schedule_.observes()) state["schedule"] = detail::plateau_json(schedule_.state());
    return state;
  }

  void restore_state(const std::filesystem::path& directory, const run::Json& state) {
    load_weights(directory, &state);
    optimizer_.load_state(parts_.placement->load_optimizer(directory, optimizer_.state()));
    parts_.sampler->restore(state.at("sampler"));
    if constexpr (sampler::SummarizedRows<Rows>)
      if (state.contains("summary") && parts_.world->rank() == 0) summary_.restore(state["summary"]);
    if (schedule_.observes() && state.contains("schedule")) schedule_.restore(detail::plateau_of(state["schedule"]));
  }

  Config config_;
  Parts parts_;
  optim::GroupedParameters trained_;
  at::TensorOptions numbers_;
  double mean_elements_ = 0.0;  // of a parameter
  O optimizer_;
  optim::Schedule schedule_;
  Stage experience_;
  std::int64_t version_ = 0;  // number of updates the weights have seen
  double latest_norm_ = 0.0;  // of the gradient, the same on all ranks
  detail::AsynchronousWatch watch_;
  [[no_unique_address]]
  typename detail::SummaryOf<Rows>::type summary_;  // of this evaluation, or since the last record
  Batch latest_;                                    // of the step just trained
};

}  // namespace rlalgo::trainer
