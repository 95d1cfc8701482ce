// Definitions of loop.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/activity.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/detail/output_lock.hpp>
#include <rlalgo/run/final_files.hpp>
#include <rlalgo/run/health.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/metric_window.hpp>
#include <rlalgo/run/metrics_log.hpp>
#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/progress.hpp>
#include <rlalgo/run/report.hpp>
#include <rlalgo/run/resume.hpp>
#include <rlalgo/run/run_info.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/run/step.hpp>
#include <rlalgo/run/tensorboard.hpp>
#include <rlalgo/run/trainer_state.hpp>

namespace rlalgo::run {

RLALGO_INLINE void require_finite(std::int64_t step, double loss, double grad_norm) {
  if (std::isfinite(loss) && std::isfinite(grad_norm)) return;
  core::raise(
      "run", 9,
      {.what = std::isfinite(loss) ? "the gradient norm is not finite" : "the loss is not finite",
       .found = "loss " + std::to_string(loss) + ", grad_norm " + std::to_string(grad_norm),
       .where = "step " + std::to_string(step),
       .remedy = "the weights of this step are untouched; lower learning_rate, check rewards and precision, and "
                 "resume from the last checkpoint"});
}

RLALGO_INLINE void check_resume(const LoopConfig& config) {
  if (!config.resume_from_checkpoint) return;
  const LoadedCheckpoint checkpoint = read_checkpoint(*config.resume_from_checkpoint, Verify::sizes);
  (void)check_resumable(checkpoint, config.identity, config.settings, config.resume_rules);
}

class Loop::Body {
 public:
  Body(LoopConfig config, Callbacks callbacks);

  void observe(Observer& observer) { observers_.push_back(&observer); }

  Outcome run();

 private:
  void check() const;

  Outcome run_steps();

  void resume_or_start();

  void restore_logs(const LoadedCheckpoint& checkpoint);

  void announce_start();

  void one_step();

  void evaluate();

  // The lines of samples.jsonl for the newest step, whether it was trained here or before the resumed checkpoint.
  [[nodiscard]] std::string newest_samples() const;

  // Samples first: an observer of the record finds them on disk.
  void emit_window();

  // An output_dir that was deleted, or moved away, while the run goes on is made anew with all that is known.
  void keep_output();

  void emit(const Record& record);

  void describe(const std::string& status, const std::string& error = "");

  void message(const std::string& text);

  [[nodiscard]] TrainerState trainer_state() const;

  void save_checkpoint();
  void rotate();

  void save_final();

  // What writes the model for others.
  [[nodiscard]] const std::function<void(const std::filesystem::path&)>& output() const {
    return callbacks_.save_output ? callbacks_.save_output : callbacks_.save_model;
  }

  // Sums over the whole run, resumed parts included.
  struct Totals {
    double loss = 0.0;
    std::int64_t tokens = 0;                      // of all steps
    std::optional<std::int64_t> num_tokens = {};  // the metric of that name, where the method has it
    [[nodiscard]] std::int64_t seen() const { return num_tokens.value_or(tokens); }
    void add(const StepResult& step) {
      loss += step.loss;
      tokens += step.tokens;
      if (const double said = step.metrics.value("num_tokens"); std::isfinite(said))
        num_tokens = static_cast<std::int64_t>(said);
    }
    [[nodiscard]] Json json() const {
      Json out = {{"loss", loss}, {"tokens", tokens}};
      if (num_tokens) out["num_tokens"] = *num_tokens;
      return out;
    }
    static Totals from(const Json& json) {
      Totals out{json.at("loss").get<double>(), json.at("tokens").get<std::int64_t>()};
      if (json.contains("num_tokens")) out.num_tokens = json["num_tokens"].get<std::int64_t>();
      return out;
    }
  };

  LoopConfig config_;
  Callbacks callbacks_;
  Progress progress_;
  TensorBoard board_;
  ReportWriter report_;
  HealthWatch health_;
  std::vector<Observer*> observers_;
  MetricsLog* log_ = nullptr;
  SamplesLog* samples_ = nullptr;
  MetricWindow window_;
  Totals totals_;
  std::string run_id_;
  LossWatchdog watchdog_{config_.watchdog};
  std::int64_t step_ = 0;         // optimizer steps done
  std::int64_t first_step_ = 0;   // of them, by the run that was resumed
  std::vector<Record> history_;   // the records of the checkpoint that was resumed
  std::string restored_samples_;  // lines of its step, where that was not logged yet
  std::int64_t saved_ = -1;       // step of the newest checkpoint of this run
  std::int64_t evaluated_ = -1;   // the step of the last evaluation
  double epoch_ = 0.0;
  static constexpr std::size_t most_warned = 10'000;
  std::set<std::string> warned_;  // what was said once need not be said each step
  bool announced_ = false;
  std::string started_ = utc_now();
  os::Stopwatch runtime_;
};

RLALGO_INLINE Loop::Body::Body(LoopConfig config, Callbacks callbacks)
    : config_(std::move(config)), callbacks_(std::move(callbacks)) {
  check();
  if (config_.progress) observers_.push_back(&progress_);
  if (config_.progress) observers_.push_back(&health_);
  if (config_.tensorboard) observers_.push_back(&board_);
  if (config_.report) observers_.push_back(&report_);
}

RLALGO_INLINE Outcome Loop::Body::run() {
  detail::make_directory(config_.output_dir);
  const detail::OutputLock lock(config_.output_dir);
  clean_leftovers(config_.output_dir);
  MetricsLog log(config_.output_dir);
  SamplesLog samples(config_.output_dir);
  log_ = &log;
  samples_ = &samples;
  std::optional<Interrupt> interrupt;
  if (config_.signals) interrupt.emplace();
  try {
    const Outcome outcome = run_steps();
    keep_output();
    describe(outcome.interrupted ? "interrupted" : outcome.stopped.empty() ? "finished" : "stopped", outcome.stopped);
    for (Observer* o : observers_) o->on_finish();
    return outcome;
  } catch (const std::exception& error) {
    // The error is on its way to the user; a second one while closing (the same full disk) must not hide it.
    try {
      if (announced_) keep_output();
      if (announced_) describe("failed", error.what());  // a refused resume leaves the former run's files alone
      for (Observer* o : observers_) o->on_finish();
    } catch (const std::exception& second) {
      message(std::string("while closing the run: ") + second.what());
    }
    throw;
  }
}

RLALGO_INLINE void Loop::Body::check() const {
  const auto refuse = [](const std::string& key, const std::string& found, const std::string& expected) {
    core::raise_usage("run", 2,
                      {.what = "impossible setting of the loop", .found = found, .expected = expected, .where = key});
  };
  if (config_.max_steps < 1) refuse("max_steps", std::to_string(config_.max_steps), "at least 1");
  if (config_.logging_steps < 1) refuse("logging_steps", std::to_string(config_.logging_steps), "at least 1");
  if (config_.save.unit == Cadence::Unit::steps && config_.save.every < 1)
    refuse("save_steps", std::to_string(config_.save.every), "at least 1");
  if (config_.watchdog.threshold && config_.watchdog.patience < 1)
    refuse("loss_watchdog_patience", std::to_string(config_.watchdog.patience), "at least 1");
  if (config_.eval.unit == Cadence::Unit::steps && config_.eval.every < 1)
    refuse("eval_steps", std::to_string(config_.eval.every), "at least 1");
  if ((config_.eval.unit != Cadence::Unit::never || config_.eval_first) && !callbacks_.evaluate)
    refuse("eval_steps", "an evaluation schedule", "evaluation data (val_set_size or test_datasets)");
}

RLALGO_INLINE Outcome Loop::Body::run_steps() {
  resume_or_start();
  announce_start();
  bool given_up = false;
  try {
    if (config_.eval_first && step_ == 0 && !Interrupt::requested()) evaluate();
    while (step_ < config_.max_steps && !watchdog_.barks() && !Interrupt::requested()) one_step();
  } catch (const os::Interrupted& stop) {
    if (!Interrupt::requested()) throw;
    given_up = true;
    message(std::string("given up: ") + stop.what());
  }
  const bool stopped = !given_up && watchdog_.barks() && step_ < config_.max_steps;
  const bool interrupted = given_up || (step_ < config_.max_steps && !stopped);
  const Outcome outcome{step_, interrupted, interrupted ? Interrupt::exit_code() : 0,
                        stopped ? watchdog_.reason() : std::string()};
  if (interrupted && step_ == 0) return outcome;  // nothing was done: nothing to save
  if (interrupted) {
    if (saved_ != step_) save_checkpoint();
  } else {
    if (stopped && config_.save.unit == Cadence::Unit::epochs && saved_ != step_) save_checkpoint();
    if (!window_.empty()) emit_window();
    if (config_.eval.unit != Cadence::Unit::never && evaluated_ != step_) evaluate();
  }
  save_final();
  if (stopped)
    message("warning: stopped after step " + std::to_string(step_) + ": " + outcome.stopped +
            "; the model as it is now is saved in output_dir");
  if (interrupted)
    message("interrupted after step " + std::to_string(step_) + "; resume with resume_from_checkpoint: " +
            (config_.output_dir / ("checkpoint-" + std::to_string(step_))).string());
  return outcome;
}

RLALGO_INLINE void Loop::Body::resume_or_start() {
  for (const std::string& note : config_.resume_notes) message(note);
  if (!config_.resume_from_checkpoint) {
    run_id_ = new_run_id();
    if (std::filesystem::exists(config_.output_dir / metrics_file))
      message(
          "warning: output_dir holds an earlier run: its logs are replaced, its checkpoints are deleted as newer "
          "ones are saved");
    describe("running");  // from here on what lies in output_dir is of another run
    log_->restart();
    samples_->restart();
    detail::remove_file(config_.output_dir / pairs_file);
    return;
  }
  const LoadedCheckpoint checkpoint =
      read_checkpoint(*config_.resume_from_checkpoint, config_.resume_verified ? Verify::sizes : Verify::digests);
  for (const std::string& warning :
       check_resumable(checkpoint, config_.identity, config_.settings, config_.resume_rules))
    message("warning: resuming with a changed setting, the run will differ: " + warning);
  window_.restore(checkpoint.state["window"]);
  step_ = first_step_ = checkpoint.step;
  saved_ = step_;
  epoch_ = checkpoint.state["epoch"].get<double>();
  if (checkpoint.state.contains("watchdog")) watchdog_.restore(checkpoint.state["watchdog"]);
  totals_ = Totals::from(checkpoint.state["totals"]);
  run_id_ = checkpoint.run_id;
  if (callbacks_.restore_state) callbacks_.restore_state(checkpoint.path, checkpoint.state["owner"]);
  describe("running");
  restore_logs(checkpoint);
  const std::vector<Checkpoint> all = list_checkpoints(config_.output_dir);
  for (const Checkpoint& other : all)
    if (other.step > step_)
      message("warning: " + other.path.string() +
              " is of a run that went further; it is deleted when newer ones need its place");
  // A kill between a new checkpoint and the end of the oldest leaves one too many.
  std::error_code none;
  if (!all.empty() && all.back().step == step_ && std::filesystem::equivalent(all.back().path, checkpoint.path, none))
    rotate();
  message("resumed from " + checkpoint.path.string());
}

RLALGO_INLINE void Loop::Body::restore_logs(const LoadedCheckpoint& checkpoint) {
  log_->restart(checkpoint.history);
  std::int64_t last_record = 0;
  for (const Json& entry : checkpoint.history) {
    history_.push_back(to_record(entry));
    watchdog_.see(history_.back());
    last_record = std::max(last_record, history_.back().step);
    if (entry.contains("time/eval")) evaluated_ = history_.back().step;
  }
  if (!checkpoint.state.contains("samples")) {  // saved before checkpoints carried these files
    samples_->cut(last_record);
    return;
  }
  restored_samples_ = checkpoint.state["samples"].get<std::string>();
  samples_->restart(checkpoint.path);
  if (!detail::copy_whole_file(checkpoint.path / pairs_file, config_.output_dir / pairs_file))
    detail::remove_file(config_.output_dir / pairs_file);
}

RLALGO_INLINE void Loop::Body::announce_start() {
  describe("running");
  announced_ = true;
  const RunStart start{config_.output_dir, config_.title, step_, config_.max_steps, history_};
  for (Observer* o : observers_) o->on_start(start);
}

RLALGO_INLINE void Loop::Body::one_step() {
  const os::Stopwatch watch;
  const StepResult result = callbacks_.train_step(step_);
  const double seconds = watch.seconds();
  const double epoch_before = epoch_;
  ++step_;
  epoch_ = result.epoch;
  totals_.add(result);
  window_.add(result, seconds);
  watchdog_.step_ended();
  for (const std::string& warning : result.warnings)
    if (warned_.size() >= most_warned || warned_.insert(warning).second) message("warning: " + warning);
  for (Observer* o : observers_) o->on_step({step_, config_.max_steps, seconds, result});
  if (step_ % config_.logging_steps == 0 || (config_.logging_first_step && step_ == 1)) emit_window();
  if (config_.eval.due(step_, epoch_before, epoch_)) evaluate();
  const bool last = step_ == config_.max_steps && config_.save.unit != Cadence::Unit::never;
  if (last || config_.save.due(step_, epoch_before, epoch_) || (config_.save_first_step && step_ == 1))
    save_checkpoint();
}

RLALGO_INLINE void Loop::Body::evaluate() {
  const os::Stopwatch watch;
  const core::Metrics metrics = [&] {
    const core::Activity evaluating("evaluating");
    return callbacks_.evaluate();
  }();
  Record record = evaluation_record(step_, epoch_, metrics, watch.seconds());
  record.values.insert(record.values.end() - 1, {"eval_num_tokens", static_cast<double>(totals_.seen())});
  emit(record);
  evaluated_ = step_;
}

RLALGO_INLINE std::string Loop::Body::newest_samples() const {
  if (step_ == first_step_) return restored_samples_;
  if (!callbacks_.samples || config_.logged_samples == 0) return "";
  return SamplesLog::lines(step_, callbacks_.samples(config_.logged_samples));
}

RLALGO_INLINE void Loop::Body::emit_window() {
  if (callbacks_.before_record) callbacks_.before_record();
  keep_output();
  samples_->append(newest_samples());
  emit(window_.flush(step_, epoch_));
}

RLALGO_INLINE void Loop::Body::keep_output() {
  if (!log_->gone() && !samples_->gone()) return;
  log_->bring_back();
  samples_->bring_back();
  describe("running");
  message("warning: " + config_.output_dir.string() +
          " was deleted or moved away while the run went on: it is made anew, with all metrics and samples so far; "
          "the checkpoints that lay in it are gone");
}

RLALGO_INLINE void Loop::Body::emit(const Record& record) {
  keep_output();
  watchdog_.see(record);
  log_->append(record);
  for (Observer* o : observers_) o->on_record(record);
}

RLALGO_INLINE void Loop::Body::describe(const std::string& status, const std::string& error) {
  write_run_info(config_.output_dir, {run_id_, config_.title, status, error, step_, config_.max_steps, started_,
                                      config_.settings, config_.identity});
}

RLALGO_INLINE void Loop::Body::message(const std::string& text) {
  for (Observer* o : observers_) o->on_message(text);
}

RLALGO_INLINE TrainerState Loop::Body::trainer_state() const {
  return {.step = step_,
          .epoch = epoch_,
          .max_steps = config_.max_steps,
          .num_epochs = config_.num_epochs,
          .logging_steps = config_.logging_steps,
          .save_steps = config_.save.every,
          .eval_steps = config_.eval.every,
          .tokens = totals_.seen(),
          .train_batch_size = config_.train_batch_size};
}

RLALGO_INLINE void Loop::Body::save_checkpoint() {
  keep_output();
  const core::Activity saving("saving a checkpoint");
  CheckpointParts parts;
  parts.save_model = config_.save_only_model ? output() : callbacks_.save_model;
  if (!config_.save_only_model)
    parts.save_state = [&](const std::filesystem::path& building) {
      samples_->copy_to(building);
      detail::copy_whole_file(config_.output_dir / pairs_file, building / pairs_file);
      return callbacks_.save_state ? callbacks_.save_state(building) : Json::object();
    };
  parts.state = {{"epoch", epoch_},
                 {"identity", config_.identity},
                 {"settings", config_.settings},
                 {"run", run_id_},
                 {"totals", totals_.json()},
                 {"window", window_.state()},
                 {"samples", window_.empty() ? "" : newest_samples()}};
  if (watchdog_.on()) parts.state["watchdog"] = watchdog_.state();
  parts.trainer_state = to_text(trainer_state(), log_->lines());
  const std::filesystem::path path = write_checkpoint(config_.output_dir, step_, parts);
  saved_ = step_;
  message("saved " + path.string());
  rotate();
}

RLALGO_INLINE void Loop::Body::rotate() {
  rotate_checkpoints(config_.output_dir, config_.save_total_limit > 0 ? config_.save_total_limit : 4, step_);
}

RLALGO_INLINE void Loop::Body::save_final() {
  keep_output();
  if (output() && publish_files(config_.output_dir, output()))
    message("README.md in output_dir is no generated model card: it is kept, the model's own is left out");
  std::vector<std::string> history = log_->lines();
  Record summary{step_,
                 epoch_,
                 {{"train_loss", step_ > 0 ? totals_.loss / static_cast<double>(step_) : no_value},
                  {"train_runtime", runtime_.seconds()},
                  {"train_steps_per_second", static_cast<double>(step_ - first_step_) / runtime_.seconds()},
                  {"total_flos", 0.0}}};
  history.push_back(to_line(summary));
  os::write_file(config_.output_dir / trainer_state_file, to_text(trainer_state(), history));
}

RLALGO_INLINE Loop::Loop(LoopConfig config, Callbacks callbacks)
    : body_(std::make_unique<Body>(std::move(config), std::move(callbacks))) {}
RLALGO_INLINE Loop::~Loop() = default;

RLALGO_INLINE void Loop::observe(Observer& observer) { body_->observe(observer); }

RLALGO_INLINE Outcome Loop::run() { return body_->run(); }

}  // namespace rlalgo::run
