// The evaluation of a configuration on a checkpoint: one JSON object on standard output and in a file.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/config/evaluate.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/places.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/output_trial.hpp>

#include "log.hpp"
#include "own_kernels.hpp"
#include "ranks.hpp"
#include "row_counter.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

struct EvaluateOptions {
  std::string config, checkpoint, output;
};

// Takes `--name VALUE` or `--name=VALUE` out of words that are overrides otherwise.
void take_option(std::vector<std::string>& words, const std::string& name, std::string& value) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool joined = words[i].starts_with(name + "=");
    if (!joined && words[i] != name) continue;
    if (!joined && i + 1 == words.size())
      core::raise_usage("cli", 8, {.what = "an option lacks its value", .found = name, .where = "rlalgo evaluate"});
    value = joined ? words[i].substr(name.size() + 1) : words[i + 1];
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + (joined ? 1 : 2));
    return;
  }
}

// A record as in metrics.jsonl, with what was evaluated before it.
std::string to_text(const config::Evaluation& evaluation) {
  return "{\"model\": " + run::Json(evaluation.model).dump(-1, ' ', false, run::Json::error_handler_t::replace) + ", " +
         run::to_line(evaluation.record).substr(1) + "\n";
}

// A link stays, also one of the system (/dev/stdout): what it leads to is replaced.
std::filesystem::path where_it_leads(const std::filesystem::path& given) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(given, error);
  return error ? given : found;
}

// The result takes the place of nothing that is read.
void refuse_inputs(const std::filesystem::path& file, const std::string& config, const config::RunConfig& settings) {
  std::vector<config::ReadPlace> read = config::data_places(settings);
  read.push_back({"the configuration", os::expand_home(config)});
  if (os::exists(file))
    for (config::ReadPlace& place : config::model_places(settings)) read.push_back(std::move(place));
  config::refuse_overlap("--output", file, read);
}

int evaluate_as(EvaluateOptions o, std::vector<std::string> rest) {
  if (o.config.empty())
    core::raise_usage("cli", 18,
                      {.what = "`rlalgo evaluate` needs a configuration file",
                       .expected = "rlalgo evaluate CONFIG.yaml [--checkpoint DIR] [--output FILE] [--key value …]"});
  if (take_launched_ranks(rest) > 1) warning("an evaluation is made by one rank");
  take_option(rest, "--checkpoint", o.checkpoint);
  take_option(rest, "--output", o.output);
  o.checkpoint = os::expand_home(o.checkpoint, "--checkpoint");
  o.output = os::expand_home(o.output, "--output");
  const config::RunConfig settings = config::load_run_config(o.config, rest);
  for (const std::string& text : settings.warnings) warning(text);
  use_tried_kernels(config::device_of(settings));
  const std::filesystem::path file =
      o.output.empty() ? std::filesystem::path(settings.output_dir) / "eval_results.json" : where_it_leads(o.output);
  if (!o.output.empty()) refuse_inputs(file, o.config, settings);
  const run::OutputTrial room(file.has_parent_path() ? file.parent_path() : ".", run::OutputTrial::Others::may_write);
  { const os::AtomicFile trial(file); }
  RowCounter counter;
  const config::Evaluation evaluation = config::evaluate(
      settings, o.checkpoint, {.note = note, .progress = counter.progress(), .prepared = [&] { counter.end(); }});
  const std::string text = to_text(evaluation);
  os::write_file(file, text);
  std::cout << text;
  return 0;
}

}  // namespace

Run evaluate(CLI::App& app) {
  const auto options = std::make_shared<EvaluateOptions>();
  app.prefix_command();
  app.add_option("CONFIG", options->config, "the configuration of the training (YAML), with held-out rows")
      ->type_name("");
  app.add_option(
         "--checkpoint", options->checkpoint,
         "what is evaluated: a checkpoint, a model's or adapter's directory, or `last`, the newest checkpoint in "
         "output_dir; default: the model that a training starts from")
      ->type_name("DIR");
  app.add_option("--output", options->output, "where the result goes as well; default: output_dir/eval_results.json")
      ->type_name("FILE");
  app.footer(R"(
Everything else after CONFIG overrides the file: --key value, --section.key value, for example
  rlalgo evaluate config.yaml --checkpoint out/checkpoint-40
  rlalgo evaluate config.yaml --checkpoint out --val-set-size 0.2
writes one JSON object: "model", "step", "epoch", and the metrics as metrics.jsonl has them for that checkpoint
(eval_loss, eval_reward, eval_rewards/accuracies …), "time/eval" in seconds. Notes go to standard error.)");
  return [&app, options] { return evaluate_as(*options, app.remaining()); };
}

}  // namespace rlalgo::cli
