// What is done with the trainer that a configuration makes: it trains, or evaluates once (assembly/evaluate_weights.hpp).
//
// Errors: [rlalgo.config.32] there is nothing to evaluate on (usage).
#pragma once

#include <string>

#include <rlalgo/assembly/evaluate_weights.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/resume_rules.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/trackers.hpp>
#include <rlalgo/core/error.hpp>

namespace rlalgo::config::detail {

[[noreturn]] inline void raise_nothing_to_evaluate(const RunConfig& config, const std::string& found) {
  core::raise_usage("config", 32,
                    {.what = "there is nothing to evaluate on",
                     .found = found,
                     .where = config.file,
                     .remedy = "set val_set_size (a fraction such as 0.05) or test_datasets"});
}

template <class Trainer>
run::Outcome carry_out(Trainer& trainer, const RunConfig& config, const model::Decoder& decoder, OtherTask* task,
                       const TrainMessages& messages) {
  if (task == nullptr) {
    const Trackers trackers(config, messages.note);
    return trainer.run(trackers.observers());
  }
  if (!trainer.has_evaluation()) raise_nothing_to_evaluate(config, "no row is held out");
  task->record = assembly::evaluate_weights(trainer, decoder, task->weights, resume_rules(config), messages.note);
  return {};
}

}  // namespace rlalgo::config::detail
