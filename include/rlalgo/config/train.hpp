// Runs the training that a configuration describes, from the data to the saved model: what `rlalgo train` does.
//
//   const RunConfig run = load_run_config("config.yaml");
//   const run::Outcome outcome = train(run);          // outcome.step steps done; model and report in run.output_dir
//
// Order: data, environment, rewards, model, prompts as token ids (online) or preference data (offline), reference, then
// the loop of run/loop.hpp with its logs, checkpoints and resume. The process' SIGINT and SIGTERM end the run with a
// checkpoint while it is under way. Everything that the file leaves out has the default of docs/configuration.md.
// A program that calls it compiles every method that a file can name; with RLALGO_COMPILED it only links
// rlalgo::compiled_config (core/compiled.hpp).
//
// Errors: [rlalgo.config.27] a prompt leaves no room for a completion; those of load_data.hpp, load_preferences.hpp,
// environment.hpp, language_model.hpp, completion_source.hpp, the loss and trainer/trainer.hpp.
#pragma once

#include <functional>
#include <string>

#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/loop.hpp>

namespace rlalgo::config {

// What is said before the first step; the loop has its own progress.
struct TrainMessages {
  std::function<void(const std::string&)> note = {};  // one line about the data or the reference
  RowProgress progress = {};                          // how far a preparation is
  std::function<void()> prepared = {};                // a preparation ended
};

namespace detail {

template <class Unused>
struct Training {
  static run::Outcome online(const RunConfig& config, const TrainMessages& messages);
  static run::Outcome preference(const RunConfig& config, const TrainMessages& messages);
};

}  // namespace detail

[[nodiscard]] inline run::Outcome train(const RunConfig& config, const TrainMessages& messages = {}) {
  return is_preference(config) ? detail::Training<void>::preference(config, messages)
                               : detail::Training<void>::online(config, messages);
}

}  // namespace rlalgo::config

#ifdef RLALGO_COMPILED
extern template struct rlalgo::config::detail::Training<void>;
#else
#include <rlalgo/config/detail/train_online.hpp>
#include <rlalgo/config/detail/train_preference.hpp>
#endif
