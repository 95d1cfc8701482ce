// What train.hpp, evaluate.hpp and the definitions of the methods share.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::config {

// What is said before the first step; the loop has its own progress.
struct TrainMessages {
  std::function<void(const std::string&)> note = {};  // one line about the data or the reference
  RowProgress progress = {};                          // how far a preparation is
  std::function<void()> prepared = {};                // a preparation ended
};

namespace detail {

// Instead of a training: the evaluation of these weights.
struct EvaluationTask {
  std::filesystem::path weights;  // a checkpoint or a model's directory; empty: those that a training starts from
  run::Record record = {};        // what came out
};

// `evaluation`: null to train.
template <class Unused>
struct Training {
  static run::Outcome online(const RunConfig& config, const TrainMessages& messages, EvaluationTask* evaluation);
  static run::Outcome preference(const RunConfig& config, const TrainMessages& messages, EvaluationTask* evaluation);
  static run::Outcome strided(const RunConfig& config, const TrainMessages& messages, EvaluationTask* evaluation);
  // Keeps what keeps the user's functions from being loaded: environments, a rollout function, rewards.
  static void judge_functions(const RunConfig& config, Refusals& refusals);
};

}  // namespace detail
}  // namespace rlalgo::config
