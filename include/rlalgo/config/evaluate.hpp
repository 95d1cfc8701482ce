// The evaluation that a configuration describes, of one set of weights: what `rlalgo evaluate` does.
//
//   const Evaluation result = evaluate(load_run_config("config.yaml"), "out/checkpoint-40");
//   result.record.value("eval_loss");
//
// The held-out rows, rewards, reference and sampling are those of the training that the configuration describes, so a
// checkpoint of that training gives the numbers that its metrics.jsonl has for that step. Weights are those of
//   nothing        the model as a training would start: base_model, with the adapter of lora_model_dir or a fresh one
//   "last"         the newest whole checkpoint in output_dir
//   a directory    a checkpoint, or a model or adapter of the same shape: the output_dir of a finished run
// Nothing is written to output_dir.
//
// Errors: [rlalgo.config.29] the weights are of another model; [.30] there is no such checkpoint (usage); [.32] there
// is nothing to evaluate on (usage); those of train.hpp, run/checkpoint.hpp and Trainer::load_weights().
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/outside.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/train.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/run/outside.hpp>
#include <rlalgo/run/resume.hpp>

namespace rlalgo::config {

struct Evaluation {
  std::string model;   // what was evaluated: a directory, or base_model as it is named
  run::Record record;  // step, epoch, eval_…, time/eval
};

namespace detail {

[[nodiscard]] inline std::filesystem::path find_weights(const RunConfig& config, const std::string& name,
                                                        const TrainMessages& messages) {
  if (name.empty()) return {};
  const auto missing = [&](const std::string& found, const std::string& where) {
    core::raise_usage("config", 30,
                      {.what = "there is no such checkpoint",
                       .found = found,
                       .expected = "a checkpoint-<step> directory, a model's directory, or last",
                       .where = where});
  };
  if (name == "last") {
    const auto found = run::latest_checkpoint(config.output_dir, [&](const std::string& text) {
      if (messages.note) messages.note(text);
    });
    if (!found) missing("no whole checkpoint", config.output_dir);
    return *found;
  }
  if (!std::filesystem::is_directory(name)) missing(std::filesystem::exists(name) ? "a file" : "nothing", name);
  return name;
}

}  // namespace detail

// `checkpoint`: "", "last" or a directory.
[[nodiscard]] inline Evaluation evaluate(RunConfig config, const std::string& checkpoint = {},
                                         const TrainMessages& messages = {}) {
  if (config.val_set_size <= 0 && config.test_datasets.empty())
    detail::raise_nothing_to_evaluate(config, "neither val_set_size nor test_datasets");
  const run::Interrupt interrupt(run::Interrupt::Stage::starting);
  detail::OtherTask task{.weights = detail::find_weights(config, checkpoint, messages)};
  config.resume_from_checkpoint.reset();
  config.auto_resume_from_checkpoints = false;
  take_outside(config, *world_of(config),
               task.weights.empty() ? std::optional<os::Outside>() : run::kept_outside(task.weights));
  const os::OutsideInEnvironment environment(config.outside);
  (void)tensor::with_memory_errors(device_of(config), std::string(memory_remedy),
                                   [&] { return detail::train_or_evaluate(config, messages, &task); });
  return {.model = task.weights.empty() ? config.base_model : task.weights.string(), .record = std::move(task.record)};
}

}  // namespace rlalgo::config
