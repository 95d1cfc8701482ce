#include <csignal>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/train.hpp>

#include "log.hpp"
#include "row_counter.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

int train_as(const std::string& file, const std::vector<std::string>& overrides) {
  if (file.empty())
    core::raise_usage("cli", 4,
                      {.what = "`rlalgo train` needs a configuration file", .expected = "rlalgo train CONFIG.yaml"});
  // What is printed is progress, not the result: a reader that went away does not end the run, nor fail it.
  std::signal(SIGPIPE, SIG_IGN);
  const config::RunConfig settings = config::load_run_config(file, overrides);
  for (const std::string& text : settings.warnings) warning(text);
  RowCounter counter;
  const run::Outcome outcome =
      config::train(settings, {.note = note, .progress = counter.progress(), .prepared = [&] { counter.end(); }});
  std::cout << (outcome.interrupted ? "interrupted at step " : "done: step ") << outcome.step
            << ", model and report in " << settings.output_dir << "\n";
  return outcome.exit_code();
}

}  // namespace

Run train(CLI::App& app) {
  const auto file = std::make_shared<std::string>();
  app.prefix_command();
  app.add_option("CONFIG", *file, "a configuration file (YAML) with axolotl's keys")->type_name("");
  app.footer(R"(
Everything after CONFIG overrides the file: --key value, --section.key value (dashes or underscores), for example
  rlalgo train config.yaml --learning-rate 2e-6 --trl.num-generations 16
  rlalgo train config.yaml --resume-from-checkpoint out/checkpoint-40
The keys are in docs/configuration.md. Ctrl-C ends the step, saves a checkpoint and exits with 130; SIGTERM,
SIGHUP and SIGQUIT do the same, with 128 + the signal.)");
  return [&app, file] { return train_as(*file, app.remaining()); };
}

}  // namespace rlalgo::cli
