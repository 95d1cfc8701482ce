// What train.hpp, evaluate.hpp and the definitions of the methods share.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::config {

// What is said before the first step; the loop has its own progress.
struct TrainMessages {
  std::function<void(const std::string&)> note = {};            // one line about the data or the reference
  assembly::RowProgress progress = {};                          // how far a preparation is
  std::function<void()> prepared = {};                          // a preparation ended
  std::function<void(const assembly::Overview&)> planned = {};  // everything is loaded, the first step is next

  void note_all(const std::vector<std::string>& texts) const {
    if (note)
      for (const std::string& text : texts) note(text);
  }
  // A preparation ended, and this is said of it.
  void note_prepared(const std::vector<std::string>& texts) const {
    if (prepared) prepared();
    note_all(texts);
  }
  // Where there is something to say.
  void note_some(const std::string& text) const {
    if (note && !text.empty()) note(text);
  }
};

namespace detail {

// What is done instead of a training.
struct OtherTask {
  enum class Kind {
    evaluation,  // of these weights
    dry_run,     // everything is loaded and measured, TrainMessages::planned is called, and that is all
    rows         // the same without weights, as soon as rows are token ids
  };
  Kind kind = Kind::evaluation;
  std::filesystem::path weights = {};  // a checkpoint or a model's directory; empty: those that a training starts from
  run::Record record = {};             // what came out of an evaluation
};

[[nodiscard]] inline bool evaluates(const OtherTask* task) {
  return task != nullptr && task->kind == OtherTask::Kind::evaluation;
}

// Whether that was all there is to do.
inline bool shows_rows_only(const OtherTask* task, const TrainMessages& messages, const assembly::Overview& overview) {
  if (task == nullptr || task->kind != OtherTask::Kind::rows) return false;
  if (messages.planned) messages.planned(overview);
  return true;
}

// `task`: null to train.
template <class Unused>
struct Training {
  static run::Outcome online(const RunConfig& config, const TrainMessages& messages, OtherTask* task);
  static run::Outcome preference(const RunConfig& config, const TrainMessages& messages, OtherTask* task);
  static run::Outcome strided(const RunConfig& config, const TrainMessages& messages, OtherTask* task);
  // Keeps what keeps the user's functions from being loaded: environments, a rollout function, rewards.
  static void judge_functions(const RunConfig& config, Refusals& refusals);
};

}  // namespace detail
}  // namespace rlalgo::config
