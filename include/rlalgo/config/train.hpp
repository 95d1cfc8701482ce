// Runs the training that a configuration describes, from the data to the saved model: what `rlalgo train` does.
//
//   const RunConfig run = load_run_config("config.yaml");
//   const run::Outcome outcome = train(run);          // outcome.step steps done; model and report in run.output_dir
//
// What the run reads of time, language and host is taken first (outside.hpp), and found by the Python processes in their
// environment. Order: places and whether files can be made in them; data, environment, rewards; tokenizer and prompts as token ids
// (online) or preference data (offline); what a checkpoint to resume from says; the model's weights, reference, then the
// loop of run/loop.hpp with its logs, checkpoints and resume. So everything that can be refused without the weights is
// refused before they are loaded. The signals of run/interrupt.hpp end the run: with a checkpoint while it is under way,
// with an os::Interrupted before. Everything that the file leaves out has the default of docs/configuration.md.
// Several ranks (RunConfig::world) call it with the same configuration; rank 0 writes all files.
// A program that calls it compiles every method that a file can name; with RLALGO_COMPILED it only links
// rlalgo::compiled_config (core/compiled.hpp).
//
// Errors: [rlalgo.config.27] a prompt leaves no room for a completion; those of assembly/load_prompts.hpp,
// assembly/load_preferences.hpp, assembly/environments.hpp, assembly/language_model.hpp, assembly/completions.hpp, the loss and trainer/trainer.hpp.
#pragma once

#include <optional>
#include <string>

#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/outside.hpp>
#include <rlalgo/config/places.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/output_trial.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::config {

namespace detail {

// No member: those of Training are compiled elsewhere.
[[nodiscard]] inline run::Outcome train_or_evaluate(const RunConfig& config, const TrainMessages& messages,
                                                    OtherTask* task) {
  if (is_strided(config)) return Training<void>::strided(config, messages, task);
  return is_preference(config) ? Training<void>::preference(config, messages, task)
                               : Training<void>::online(config, messages, task);
}

}  // namespace detail

[[nodiscard]] inline run::Outcome train(const RunConfig& config, const TrainMessages& messages = {}) {
  const run::Interrupt interrupt(run::Interrupt::Stage::starting);
  check_places(config);
  const auto world = world_of(config);
  form_groups(config, *world);
  require_agreement(config, *world);
  require_cards(config, *world);
  RunConfig fixed = config;
  take_outside(fixed, *world, outside_to_resume(config));
  const os::OutsideInEnvironment environment(fixed.outside);
  std::optional<run::OutputTrial> output, prepared;
  if (world->rank() == 0) output.emplace(config.output_dir);
  if (world->rank() == 0 && is_preference(config) && config.preference.dataset_prepared_path)
    prepared.emplace(*config.preference.dataset_prepared_path);
  return tensor::with_memory_errors(device_of(config), std::string(memory_remedy),
                                    [&] { return detail::train_or_evaluate(fixed, messages, nullptr); });
}

// How much of a run is looked at without training: its rows alone, or everything there is before the first step, with the model.
enum class DryRun { rows, everything };

// Loads and checks what `train` would, calls TrainMessages::planned with what it found (and, of everything, measured), and leaves
// the disk as it is: prepared rows are read where they are there and kept in memory where not.
inline void dry_run(RunConfig config, DryRun how_much, const TrainMessages& messages) {
  const run::Interrupt interrupt(run::Interrupt::Stage::starting);
  check_places(config);
  const auto world = world_of(config);
  form_groups(config, *world);
  take_outside(config, *world, outside_to_resume(config));
  const os::OutsideInEnvironment environment(config.outside);
  const run::OutputTrial output(config.output_dir);
  config.preference.keeps_prepared = false;
  config.preference.precompute_ref_log_probs = false;
  if (config.trl.async_schedule == "record") config.trl.async_schedule = "live";
  detail::OtherTask task{.kind = how_much == DryRun::rows ? detail::OtherTask::Kind::rows
                                                          : detail::OtherTask::Kind::dry_run};
  (void)tensor::with_memory_errors(device_of(config), std::string(memory_remedy),
                                   [&] { return detail::train_or_evaluate(config, messages, &task); });
}

}  // namespace rlalgo::config

#ifdef RLALGO_COMPILED
extern template struct rlalgo::config::detail::Training<void>;
#else
#include <rlalgo/config/detail/train_online.hpp>
#include <rlalgo/config/detail/train_preference.hpp>
#include <rlalgo/config/detail/train_strided.hpp>
#endif
