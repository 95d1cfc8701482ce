// Trackers of a run: where its metrics go besides metrics.jsonl and TensorBoard, by axolotl's keys.
//
//   use_wandb, wandb_project …      W&B             use_mlflow, mlflow_experiment_name …    MLflow
//   use_trackio, trackio_project_name …   Trackio   use_comet, comet_project_name …         Comet
//
// A tracker is on when its use_ key is true or its project (experiment) is named; wandb_mode: disabled turns W&B off. Its keys are
// handed to its own client as the environment variables that axolotl sets. They are no settings of the run: a resume may change them,
// and a key of an account is in no file. remote/tracker.hpp says what a tracker can and cannot do to a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/remote/tracker.hpp>
#include <rlalgo/run/observer.hpp>

namespace rlalgo::config {

// The trackers of a run, on rank 0; what `note` hears comes on the run's thread.
class Trackers {
 public:
  Trackers(const RunConfig& config, const std::function<void(const std::string&)>& note) {
    if (config.world != nullptr && config.world->rank() > 0) return;
    for (const TrackerSettings& settings : config.trackers) {
      trackers_.push_back(std::make_unique<remote::Tracker>(remote::TrackerConfig{
          .name = settings.name, .environment = settings.environment, .settings = config.settings, .tell = note}));
      observers_.push_back(trackers_.back().get());
    }
  }

  [[nodiscard]] const std::vector<run::Observer*>& observers() const noexcept { return observers_; }

 private:
  std::vector<std::unique_ptr<remote::Tracker>> trackers_;
  std::vector<run::Observer*> observers_;
};

}  // namespace rlalgo::config
