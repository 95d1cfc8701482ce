// The training loop without the algorithm: steps, logging, evaluation, checkpoints, resume, interruption.
//
//   for step in (resumed, max_steps]:  train_step → metric window → log? → evaluate? → save? → interrupted?
//   at the end of a run                what was not logged or evaluated yet → final files
//
// The loop owns output_dir and the order of things; it knows no tensor. The caller owns policy, optimizer, sampler and
// sync, and passes callbacks. Guarantees: a resumed run prints the records and makes the checkpoints of one that was
// never interrupted (except time/…); the checkpoint of a step is taken before the leftover records of a run's last step
// are flushed, so extending max_steps later changes nothing; a failure leaves every earlier checkpoint intact.
//
// Errors: [rlalgo.run.9] non-finite loss or gradient norm (require_finite, called by train_step before the weights
// are touched); [rlalgo.run.2] impossible settings; [rlalgo.run.3] another run is writing in output_dir;
// those of checkpoint.hpp and resume.hpp; [rlalgo.core.1] file errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/detail/final_files.hpp>
#include <rlalgo/run/detail/output_lock.hpp>
#include <rlalgo/run/health.hpp>
#include <rlalgo/run/interrupt.hpp>
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

// When something happens: never, every n optimizer steps, or whenever an epoch ends.
struct Cadence {
  enum class Unit { never, steps, epochs };
  Unit unit = Unit::never;
  std::int64_t every = 0;  // steps; ignored for the other units
  static Cadence never() { return {}; }
  static Cadence steps(std::int64_t n) { return {Unit::steps, n}; }
  static Cadence epochs() { return {Unit::epochs, 0}; }

  [[nodiscard]] bool due(std::int64_t step, double epoch_before, double epoch_after) const {
    constexpr double slack = 1e-9;  // epochs are sums of fractions
    if (unit == Unit::steps) return step % every == 0;
    return unit == Unit::epochs && std::floor(epoch_after + slack) > std::floor(epoch_before + slack);
  }
};

struct LoopConfig {
  std::filesystem::path output_dir = "model-out";
  std::string title;                  // for the report: recipe and model
  std::int64_t max_steps = 0;         // optimizer steps of the whole run, resumed ones included
  double num_epochs = 1.0;            // for trainer_state.json
  std::int64_t train_batch_size = 1;  // micro-batch, for trainer_state.json
  std::int64_t logging_steps = 1;     // a record every so many steps …
  bool logging_first_step = true;     // … and after step 1; the last step is always logged
  Cadence save = Cadence::epochs();   // checkpoint-N; unless never, the last step saves too
  bool save_first_step = false;       // an extra checkpoint after step 1
  bool save_only_model = false;       // no optimizer state: cannot be resumed
  std::int64_t save_total_limit = 4;  // checkpoints kept; ≤ 0 means 4
  Cadence eval = Cadence::never();    // … and after the last step; needs Callbacks::evaluate
  std::size_t logged_samples = 4;     // rollouts per record in samples.jsonl
  bool eval_first = false;            // also before step 1
  std::optional<std::filesystem::path> resume_from_checkpoint;
  bool resume_verified = false;           // the digests of its files were just compared
  std::vector<std::string> resume_notes;  // told when the run starts
  ResumeRules resume_rules = {};          // what of `settings` may differ from the checkpoint's
  bool progress = true;                   // on standard output
  bool tensorboard = true;
  bool report = true;
  Json identity = Json::object();  // see resume.hpp: a difference forbids resuming
  Json settings = Json::object();  // every other setting, flat; shown in the report
};

struct Callbacks {
  // One update of the weights. `step` is 0-based: the number of updates before it.
  std::function<StepResult(std::int64_t step)> train_step;
  // Metrics of the held-out split, logged with the prefix eval_. Empty: no evaluation.
  std::function<core::Metrics()> evaluate;
  // Model and tokenizer files into `dir`.
  std::function<void(const std::filesystem::path& dir)> save_model;
  // Writes optimizer.safetensors … into `dir` and returns what else a resumed run needs: sampler cursor, versions …
  std::function<Json(const std::filesystem::path& dir)> save_state;
  // The inverse of save_model and save_state together.
  std::function<void(const std::filesystem::path& dir, const Json& state)> restore_state;
  // Up to `limit` rollouts of the step just trained, for samples.jsonl. Empty: none.
  std::function<std::vector<Sample>(std::size_t limit)> samples;
};

struct Outcome {
  std::int64_t step = 0;     // optimizer steps done in all
  bool interrupted = false;  // by SIGINT or SIGTERM; the exit status is then 130
  [[nodiscard]] int exit_code() const { return interrupted ? Interrupt::exit_code : 0; }
};

// To be called by train_step when gradients are complete and weights are still untouched; `step` is 1-based.
inline void require_finite(std::int64_t step, double loss, double grad_norm) {
  if (std::isfinite(loss) && std::isfinite(grad_norm)) return;
  core::raise(
      "run", 9,
      {.what = std::isfinite(loss) ? "the gradient norm is not finite" : "the loss is not finite",
       .found = "loss " + std::to_string(loss) + ", grad_norm " + std::to_string(grad_norm),
       .where = "step " + std::to_string(step),
       .remedy = "the weights of this step are untouched; lower learning_rate, check rewards and precision, and "
                 "resume from the last checkpoint"});
}

class Loop {
 public:
  Loop(LoopConfig config, Callbacks callbacks) : config_(std::move(config)), callbacks_(std::move(callbacks)) {
    check();
    if (config_.progress) observers_.push_back(&progress_);
    if (config_.progress) observers_.push_back(&health_);
    if (config_.tensorboard) observers_.push_back(&board_);
    if (config_.report) observers_.push_back(&report_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // The observer must outlive run(). It is called after the loop's own: progress line, TensorBoard, report.
  void observe(Observer& observer) { observers_.push_back(&observer); }

  // Once per Loop.
  Outcome run() {
    detail::make_directory(config_.output_dir);
    const detail::OutputLock lock(config_.output_dir);
    clean_leftovers(config_.output_dir);
    MetricsLog log(config_.output_dir);
    SamplesLog samples(config_.output_dir);
    log_ = &log;
    samples_ = &samples;
    const Interrupt interrupt;
    try {
      const Outcome outcome = run_steps();
      describe(outcome.interrupted ? "interrupted" : "finished");
      for (Observer* o : observers_) o->on_finish();
      return outcome;
    } catch (const std::exception& error) {
      // The error is on its way to the user; a second one while closing (the same full disk) must not hide it.
      try {
        if (announced_) describe("failed", error.what());  // a refused resume leaves the former run's files alone
        for (Observer* o : observers_) o->on_finish();
      } catch (const std::exception& second) {
        message(std::string("while closing the run: ") + second.what());
      }
      throw;
    }
  }

 private:
  void check() const {
    const auto refuse = [](const std::string& key, const std::string& found, const std::string& expected) {
      core::raise_usage("run", 2,
                        {.what = "impossible setting of the loop", .found = found, .expected = expected, .where = key});
    };
    if (config_.max_steps < 1) refuse("max_steps", std::to_string(config_.max_steps), "at least 1");
    if (config_.logging_steps < 1) refuse("logging_steps", std::to_string(config_.logging_steps), "at least 1");
    if (config_.save.unit == Cadence::Unit::steps && config_.save.every < 1)
      refuse("save_steps", std::to_string(config_.save.every), "at least 1");
    if (config_.eval.unit == Cadence::Unit::steps && config_.eval.every < 1)
      refuse("eval_steps", std::to_string(config_.eval.every), "at least 1");
    if ((config_.eval.unit != Cadence::Unit::never || config_.eval_first) && !callbacks_.evaluate)
      refuse("eval_steps", "an evaluation schedule", "evaluation data (val_set_size or test_datasets)");
  }

  Outcome run_steps() {
    resume_or_start();
    announce_start();
    if (config_.eval_first && step_ == 0) evaluate();
    while (step_ < config_.max_steps && !Interrupt::requested()) one_step();
    const bool interrupted = step_ < config_.max_steps;
    if (interrupted && step_ == 0) return {step_, interrupted};  // nothing was done: nothing to save
    if (interrupted) {
      if (saved_ != step_) save_checkpoint();
    } else {
      if (!window_.empty()) emit_window();
      if (config_.eval.unit != Cadence::Unit::never && evaluated_ != step_) evaluate();
    }
    save_final();
    if (interrupted)
      message("interrupted after step " + std::to_string(step_) + "; resume with resume_from_checkpoint: " +
              (config_.output_dir / ("checkpoint-" + std::to_string(step_))).string());
    return {step_, interrupted};
  }

  void resume_or_start() {
    for (const std::string& note : config_.resume_notes) message(note);
    if (!config_.resume_from_checkpoint) {
      run_id_ = new_run_id();
      if (std::filesystem::exists(config_.output_dir / metrics_file))
        message(
            "warning: output_dir holds an earlier run: its logs are replaced, its checkpoints are deleted as newer "
            "ones are saved");
      describe("running");  // from here on what lies in output_dir is of another run
      log_->restart();
      samples_->restart(0);
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
    totals_ = Totals::from(checkpoint.state["totals"]);
    run_id_ = checkpoint.run_id;
    if (callbacks_.restore_state) callbacks_.restore_state(checkpoint.path, checkpoint.state["owner"]);
    describe("running");
    log_->restart(checkpoint.history);
    for (const Json& entry : checkpoint.history) {
      last_record_ = std::max(last_record_, entry.at("step").get<std::int64_t>());
      if (entry.contains("time/eval")) evaluated_ = entry.at("step").get<std::int64_t>();
    }
    samples_->restart(last_record_);
    for (const Checkpoint& other : list_checkpoints(config_.output_dir))
      if (other.step > step_)
        message("warning: " + other.path.string() +
                " is of a run that went further; it is deleted when newer ones need its place");
    message("resumed from " + checkpoint.path.string());
  }

  void announce_start() {
    describe("running");
    announced_ = true;
    const RunStart start{config_.output_dir, config_.title, step_, config_.max_steps, last_record_};
    for (Observer* o : observers_) o->on_start(start);
  }

  void one_step() {
    const core::Stopwatch watch;
    const StepResult result = callbacks_.train_step(step_);
    const double seconds = watch.seconds();
    const double epoch_before = epoch_;
    ++step_;
    epoch_ = result.epoch;
    totals_.loss += result.loss;
    totals_.tokens += result.tokens;
    window_.add(result, seconds);
    for (const std::string& warning : result.warnings) message("warning: " + warning);
    for (Observer* o : observers_) o->on_step({step_, config_.max_steps, seconds, result});
    if (step_ % config_.logging_steps == 0 || (config_.logging_first_step && step_ == 1)) emit_window();
    if (config_.eval.due(step_, epoch_before, epoch_)) evaluate();
    const bool last = step_ == config_.max_steps && config_.save.unit != Cadence::Unit::never;
    if (last || config_.save.due(step_, epoch_before, epoch_) || (config_.save_first_step && step_ == 1))
      save_checkpoint();
  }

  void evaluate() {
    const core::Stopwatch watch;
    const core::Metrics metrics = callbacks_.evaluate();
    Record record{step_, epoch_, {}};
    for (const auto& [name, value] : metrics.values()) record.values.emplace_back("eval_" + name, value);
    record.values.emplace_back("time/eval", watch.seconds());
    emit(record);
    evaluated_ = step_;
  }

  // Samples first: an observer of the record finds them on disk.
  void emit_window() {
    if (callbacks_.samples && config_.logged_samples > 0)
      samples_->append(step_, callbacks_.samples(config_.logged_samples));
    emit(window_.flush(step_, epoch_));
  }

  void emit(const Record& record) {
    log_->append(record);
    for (Observer* o : observers_) o->on_record(record);
  }

  void describe(const std::string& status, const std::string& error = "") {
    write_run_info(config_.output_dir, {run_id_, config_.title, status, error, step_, config_.max_steps, started_,
                                        config_.settings, config_.identity});
  }

  void message(const std::string& text) {
    for (Observer* o : observers_) o->on_message(text);
  }

  [[nodiscard]] TrainerState trainer_state() const {
    return {.step = step_,
            .epoch = epoch_,
            .max_steps = config_.max_steps,
            .num_epochs = config_.num_epochs,
            .logging_steps = config_.logging_steps,
            .save_steps = config_.save.every,
            .eval_steps = config_.eval.every,
            .tokens = totals_.tokens,
            .train_batch_size = config_.train_batch_size};
  }

  void save_checkpoint() {
    CheckpointParts parts;
    parts.save_model = callbacks_.save_model;
    if (!config_.save_only_model)
      parts.save_state = callbacks_.save_state ? callbacks_.save_state : [](const auto&) { return Json::object(); };
    parts.state = {{"epoch", epoch_}, {"identity", config_.identity}, {"settings", config_.settings},
                   {"run", run_id_},  {"totals", totals_.json()},     {"window", window_.state()}};
    parts.trainer_state = to_text(trainer_state(), log_->lines());
    const std::filesystem::path path = write_checkpoint(config_.output_dir, step_, parts);
    saved_ = step_;
    rotate_checkpoints(config_.output_dir, config_.save_total_limit > 0 ? config_.save_total_limit : 4, step_);
    message("saved " + path.string());
  }

  void save_final() {
    if (callbacks_.save_model) detail::publish_files(config_.output_dir, callbacks_.save_model);
    std::vector<std::string> history = log_->lines();
    Record summary{step_,
                   epoch_,
                   {{"train_loss", step_ > 0 ? totals_.loss / static_cast<double>(step_) : no_value},
                    {"train_runtime", runtime_.seconds()},
                    {"train_steps_per_second", static_cast<double>(step_ - first_step_) / runtime_.seconds()},
                    {"total_flos", 0.0}}};
    history.push_back(to_line(summary));
    core::write_file(config_.output_dir / trainer_state_file, to_text(trainer_state(), history));
  }

  // Sums over the whole run, resumed parts included.
  struct Totals {
    double loss = 0.0;
    std::int64_t tokens = 0;
    [[nodiscard]] Json json() const { return {{"loss", loss}, {"tokens", tokens}}; }
    static Totals from(const Json& json) {
      return {json.at("loss").get<double>(), json.at("tokens").get<std::int64_t>()};
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
  std::int64_t step_ = 0;         // optimizer steps done
  std::int64_t first_step_ = 0;   // of them, by the run that was resumed
  std::int64_t last_record_ = 0;  // newest record in the resumed history
  std::int64_t saved_ = -1;       // step of the newest checkpoint of this run
  std::int64_t evaluated_ = -1;   // the step of the last evaluation
  double epoch_ = 0.0;
  bool announced_ = false;
  std::string started_ = utc_now();
  core::Stopwatch runtime_;
};

}  // namespace rlalgo::run
