// The training loop without the algorithm: steps, logging, evaluation, checkpoints, resume, interruption.
//
//   for step in (resumed, max_steps]:  train_step → metric window → log? → evaluate? → save? → interrupted?
//                                      (a step that waits for another process is given up when a stop is asked for:
//                                      train_step raises os::Interrupted and leaves everything as it was)
//   at the end of a run                what was not logged or evaluated yet → final files
//
// The loop owns output_dir and the order of things; it knows no tensor. The caller owns policy, optimizer, sampler and
// sync, and passes callbacks. Guarantees: a resumed run leaves the records, samples, events and checkpoints of one that
// was never interrupted (except time/…), however often it was killed and wherever; a finished run that is run again, too.
// The checkpoint of a step is taken before the leftover records of a run's last step are flushed, so extending max_steps
// later changes nothing; a failure leaves every earlier checkpoint intact. A run that its watchdog ends (loss_watchdog.hpp) saves the
// model as at the end; a checkpoint only where they are saved at the end of an epoch, as transformers does then.
//
// Errors: [rlalgo.run.9] non-finite loss or gradient norm (require_finite, called by train_step before the weights
// are touched); [rlalgo.run.2] impossible settings; [rlalgo.run.3] another run is writing in output_dir;
// those of checkpoint.hpp and resume.hpp; [rlalgo.os.1] file errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/run/loss_watchdog.hpp>
#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/resume.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/run/step.hpp>

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
  std::string title{};                // for the report: recipe and model
  std::int64_t max_steps = 0;         // optimizer steps of the whole run, resumed ones included
  double num_epochs = 1.0;            // for trainer_state.json
  std::int64_t train_batch_size = 1;  // micro-batch, for trainer_state.json
  std::int64_t logging_steps = 1;     // a record every so many steps …
  bool logging_first_step = true;     // … and after step 1; the last step is always logged
  Cadence save = Cadence::never();    // checkpoint-N; unless never, the last step saves too
  bool signals = false;               // Ctrl-C, SIGTERM … end the step, save and end the run (interrupt.hpp)
  bool save_first_step = false;       // an extra checkpoint after step 1
  bool save_only_model = false;       // no optimizer state: cannot be resumed
  std::int64_t save_total_limit = 4;  // checkpoints kept; ≤ 0 means 4
  Cadence eval = Cadence::never();    // … and after the last step; needs Callbacks::evaluate
  std::size_t logged_samples = 4;     // rollouts per record in samples.jsonl
  bool eval_first = false;            // also before step 1
  LossWatchdogConfig watchdog = {};   // ends the run early
  std::optional<std::filesystem::path> resume_from_checkpoint{};
  bool resume_verified = false;             // the digests of its files were just compared
  std::vector<std::string> resume_notes{};  // printed when the run starts
  ResumeRules resume_rules = {};            // what of `settings` may differ from the checkpoint's
  bool progress = true;                     // on standard output
  bool tensorboard = true;
  bool report = true;
  Json identity = Json::object();  // see resume.hpp: a difference forbids resuming
  Json settings = Json::object();  // every other setting, flat; shown in the report
};

struct Callbacks {
  // One update of the weights. `step` is 0-based: the number of updates before it.
  std::function<StepResult(std::int64_t step)> train_step{};
  // Metrics of the held-out split, logged with the prefix eval_. Empty: no evaluation.
  std::function<core::Metrics()> evaluate{};
  // Model and tokenizer files into `dir`, exactly: a run goes on from them.
  std::function<void(const std::filesystem::path& dir)> save_model{};
  // The same for others to open: the end of the run, and checkpoints that nothing goes on from. Empty: save_model.
  std::function<void(const std::filesystem::path& dir)> save_output = {};
  // Writes optimizer.safetensors … into `dir` and returns what else a resumed run needs: sampler cursor, versions …
  std::function<Json(const std::filesystem::path& dir)> save_state{};
  // The inverse of save_model and save_state together.
  std::function<void(const std::filesystem::path& dir, const Json& state)> restore_state{};
  // Up to `limit` rollouts of the step just trained, for samples.jsonl. Empty: none.
  std::function<std::vector<Sample>(std::size_t limit)> samples{};
  // Just before the record of a window of steps: what else goes with it (pairs.json). Empty: nothing.
  std::function<void()> before_record{};
};

struct Outcome {
  std::int64_t step = 0;     // optimizer steps done in all
  bool interrupted = false;  // by a signal of run/interrupt.hpp
  int status = 0;            // of the process then: 130 after Ctrl-C
  std::string stopped = {};  // why it ended before its last step, by its own settings; empty: it did not
  [[nodiscard]] int exit_code() const { return interrupted ? status : 0; }
};

// To be called by train_step when gradients are complete and weights are still untouched; `step` is 1-based.
void require_finite(std::int64_t step, double loss, double grad_norm);

// What run() would say of LoopConfig::resume_from_checkpoint, before a model is loaded; files are compared by size only.
void check_resume(const LoopConfig& config);

class Loop {
 public:
  Loop(LoopConfig config, Callbacks callbacks);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // The observer must outlive run(). It is called after the loop's own: progress line, TensorBoard, report.
  void observe(Observer& observer);

  // Once per Loop.
  Outcome run();

 private:
  class Body;
  std::unique_ptr<Body> body_;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/loop_impl.hpp>
#endif
