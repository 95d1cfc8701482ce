// Metrics of a run to a tracker of others (W&B, MLflow, Trackio, Comet), by its own Python client in a process of its own.
//
// A record goes into a queue; a thread hands what waits to the process, several records at a time. Nothing waits for it: a record
// that finds the queue full is dropped and counted, a client that raises, hangs or dies is given up with one warning, and the end of the
// run waits for `end_seconds` at most. metrics.jsonl and TensorBoard have every record whatever becomes of a tracker.
//
// A run that is resumed goes on in the same W&B run: its id is the run's own, unless WANDB_RUN_ID names one.
// Source of the metrics' names: the callbacks of transformers (python/tracker.py).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/run/observer.hpp>

namespace rlalgo::remote {

struct TrackerConfig {
  std::string name{};                                // wandb, mlflow, trackio, comet
  std::map<std::string, std::string> environment{};  // variables that its client reads
  nlohmann::ordered_json settings{};                 // of the run, flat; an object
  std::string python = {};                           // empty: $RLALGO_PYTHON, else python3
  double start_seconds = 120.0;                      // to import and begin
  double call_seconds = 30.0;                        // for one hand-over
  double end_seconds = 60.0;                         // for all that is left when the run ends
  std::size_t most_waiting = 1000;                   // records
  std::function<void(const std::string&)> tell{};    // hears where the run is, and what went wrong; on the run's thread
};

class Tracker : public run::Observer {
 public:
  explicit Tracker(TrackerConfig config);
  RLALGO_INLINE ~Tracker() override;
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  RLALGO_INLINE void on_start(const run::RunStart& start) override;
  RLALGO_INLINE void on_step(const run::StepDone&) override;
  RLALGO_INLINE void on_record(const run::Record& record) override;
  RLALGO_INLINE void on_finish() override;

 private:
  using Json = nlohmann::ordered_json;
  void work(Json load);
  // What waits, up to a batch of it; empty: the run has ended and nothing is left.
  [[nodiscard]] std::vector<Json> take();
  [[nodiscard]] double seconds_left(double otherwise);
  void say(const std::string& text);
  void give_up(const std::string& why);
  void tell_what_was_said();

  TrackerConfig config_;
  std::string output_dir_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Json> waiting_;
  std::vector<std::string> said_;
  std::size_t dropped_ = 0;
  bool ending_ = false, failed_ = false, over_ = false;
  os::Deadline end_{0.0};
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/tracker_impl.hpp>
#endif
