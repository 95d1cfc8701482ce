// What is written when: logging, evaluation, checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>

namespace rlalgo::config {

// One of the trackers that metrics go to (trackers.hpp).
struct TrackerSettings {
  std::string name;                                // wandb, mlflow, trackio, comet
  std::map<std::string, std::string> environment;  // of its client
};

struct OutputConfig {
  std::string output_dir = "./model-out";
  std::optional<std::int64_t> logging_steps;
  std::optional<std::string> eval_strategy;
  std::optional<double> eval_steps;  // below 1: fraction of all steps
  std::optional<std::int64_t> evals_per_epoch;
  std::optional<bool> eval_on_start;  // unset: where one of the three above is set
  std::optional<std::string> save_strategy;
  std::optional<double> save_steps;
  std::optional<std::int64_t> saves_per_epoch;
  std::optional<double> loss_watchdog_threshold;
  std::int64_t loss_watchdog_patience = 3;
  std::int64_t save_total_limit = 4;
  bool save_only_model = false;
  bool save_first_step = false;
  bool use_tensorboard = true;            // (≠ axolotl off)
  std::vector<TrackerSettings> trackers;  // derived: of use_wandb, wandb_project … (detail/read_trackers.hpp)
  std::optional<std::string> resume_from_checkpoint;
  bool auto_resume_from_checkpoints = false;
  bool force_resume = false;
};

// clang-format off
// Of axolotl's counts and distances 0 is the same as nothing (config/detail/read_training.hpp).
[[nodiscard]] inline Keys output_keys(OutputConfig& o) {
  static const std::vector<std::string> strategies = {"no", "steps", "epoch", "best"};
  const Range steps = above(0).to(Range::most);
  constexpr Resume ends{"when the run ends, not what is computed"};
  return {
    key("output_dir", o.output_dir, "made when it is not there, and tried before anything is loaded (`os.1`). It must not be, contain "
        "or lie in a directory that the run reads: base model, adapter, tokenizer, reward model, dataset (`config.31`); a data file may "
        "lie above it").a_path().free(resume::place),
    key("logging_steps", o.logging_steps, "the first step is always logged").within(count(1)).shows("0.5 % of all steps, between 1 and 10")
        .free(resume::evaluation),
    key("evaluation_strategy", o.eval_strategy, "").one_of(strategies).old_name_of("eval_strategy").free(resume::evaluation),
    key("eval_strategy", o.eval_strategy, "`best` is not here").one_of(strategies).shows("every epoch, if there is evaluation data")
        .free(resume::evaluation),
    key("save_strategy", o.save_strategy, "the same").one_of(strategies).shows("every epoch").free(resume::when),
    key("eval_steps", o.eval_steps, "below 1 a fraction of all steps; without `val_set_size` and `test_datasets` it has no effect, with a "
        "warning").within(steps).or_nothing().free(resume::evaluation),
    key("evals_per_epoch", o.evals_per_epoch, "0 is no evaluation").within(count(1)).or_nothing().free(resume::evaluation),
    key("eval_on_start", o.eval_on_start, "an evaluation before the first step; `false`: none. transformers' name").shows("where one of the "
        "keys above is set, as axolotl has it").only_if_written().free(resume::evaluation),
    key("save_steps", o.save_steps, "below 1 a fraction of all steps; 0 is the usual saving, as in axolotl").within(steps).or_nothing()
        .free(resume::when),
    key("saves_per_epoch", o.saves_per_epoch, "the same").within(count(1)).or_nothing().free(resume::when),
    key("save_total_limit", o.save_total_limit, "checkpoints that are kept; 0 is 4").within(count(1)).or_nothing().free(resume::when),
    key("loss_watchdog_threshold", o.loss_watchdog_threshold, "a loss above it in so many steps in a row ends the run: the model as it "
        "then is goes to `output_dir`, a line says so, `run.json` has the status `stopped`, and the exit status is 0. What counts is the "
        "newest logged loss at the end of each step, as in axolotl, so the run ends one step after the record of the last violation; a "
        "checkpoint is saved where epochs have one").within(any_number).only_if_written().free(ends),
    key("loss_watchdog_patience", o.loss_watchdog_patience, "so many steps; 0 is 3").within(count(1)).or_nothing()
        .when(where([&o] { return o.loss_watchdog_threshold.has_value(); }, "there is no loss_watchdog_threshold")).only_if_written()
        .free(ends),
    key("save_only_model", o.save_only_model, "checkpoints without the optimizer's state: no resume").free(resume::when),
    key("save_first_step", o.save_first_step, "a checkpoint after step 1, too").free(resume::when),
    key("use_tensorboard", o.use_tensorboard, "events under `runs/`").free(resume::when),
    key("resume_from_checkpoint", o.resume_from_checkpoint, "a directory, or `last`: the newest whole checkpoint in `output_dir` that this run saved, which has to be "
        "there. See below").a_path().free(resume::how),
    key("auto_resume_from_checkpoints", o.auto_resume_from_checkpoints, "the same checkpoint where it is there; where not, the run starts afresh")
        .free(resume::how),
    key("force_resume", o.force_resume, "go on although settings, rows, rewards or frozen weights have changed since the checkpoint; each "
        "is a warning then (ours)").free(resume::how),
  };
}
// clang-format on

}  // namespace rlalgo::config
