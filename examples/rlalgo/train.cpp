#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Flags.h>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/train.hpp>
#include <rlalgo/distributed/process_world.hpp>

#include "log.hpp"
#include "own_kernels.hpp"
#include "ranks.hpp"
#include "row_counter.hpp"
#include "shown_rows.hpp"
#include "verbs.hpp"

C10_DECLARE_int(caffe2_log_level);

namespace rlalgo::cli {

namespace {

void print_overview(const assembly::Overview& overview) {
  for (const std::string& line : assembly::overview_lines(overview)) std::cout << line << "\n";
  std::cout << std::flush;
}

int train_here(const config::RunConfig& settings) {
  for (const std::string& text : settings.warnings) warning(text);
  RowCounter counter;
  const run::Outcome outcome = config::train(
      settings,
      {.note = note, .progress = counter.progress(), .prepared = [&] { counter.end(); }, .planned = print_overview});
  std::cout << (outcome.interrupted        ? "interrupted at step "
                : !outcome.stopped.empty() ? "stopped by loss_watchdog_threshold at step "
                                           : "done: step ")
            << outcome.step << ", model and report in " << settings.output_dir << "\n";
  return outcome.exit_code();
}

int plan_here(const config::RunConfig& settings) {
  for (const std::string& text : settings.warnings) warning(text);
  RowCounter counter;
  const auto show = [](const assembly::Overview& overview) {
    print_overview(overview);
    for (const std::string& line : assembly::time_lines(overview)) std::cout << line << "\n";
    constexpr std::size_t rows = 3;
    print_rows(overview, rows, RowText::whole);
    std::cout << "nothing was trained or written (--dry-run)\n";
  };
  config::dry_run(settings, config::DryRun::everything,
                  {.note = note, .progress = counter.progress(), .prepared = [&] { counter.end(); }, .planned = show});
  require_output();
  return 0;
}

// One of several ranks: only the first one speaks, but for errors of its own.
int train_rank(const distributed::Place& place, double patience, config::RunConfig& settings) {
  FLAGS_caffe2_log_level =
      3;  // of every connection that fails or breaks LibTorch would log its stack, beside our error
  // Of a rank that failed rank 0 tells, too.
  const auto told = [&](const std::exception& error) {
    const auto* const known = dynamic_cast<const core::Error*>(&error);
    return place.rank > 0 && known != nullptr && known->room() == "distributed" && known->number() == 8;
  };
  try {
    settings.world = distributed::join_world(place, patience);
  } catch (const std::exception& error) {
    if (told(error)) return 1;
    throw;
  }
  try {
    return place.rank == 0 ? train_here(settings) : config::train(settings).exit_code();
  } catch (const std::exception& error) {
    settings.world->fail(error.what());
    if (told(error)) return 1;
    const auto* const known = dynamic_cast<const core::Error*>(&error);
    if (known != nullptr && !settings.world->first_to_say(error.what())) return known->exit_code();
    throw;
  }
}

int train_as(const std::string& file, std::vector<std::string> overrides) {
  if (file.empty())
    core::raise_usage("cli", 4,
                      {.what = "`rlalgo train` needs a configuration file", .expected = "rlalgo train CONFIG.yaml"});
  // What is printed is progress, not the result: a reader that went away does not end the run, nor fail it.
  std::signal(SIGPIPE, SIG_IGN);
  const auto dry = std::find(overrides.begin(), overrides.end(), "--dry-run");
  const bool plans = dry != overrides.end();
  if (plans) overrides.erase(dry);
  const int started = take_launched_ranks(overrides), restarts = take_restarts(overrides);
  const auto place = distributed::place_from_environment();
  if (started > 0 && place)
    core::raise_usage("cli", 23,
                      {.what = "--nproc-per-node is given to a rank that another program started",
                       .found = "RANK and WORLD_SIZE in the environment",
                       .remedy = "start the ranks in one way"});
  if (restarts >= 0 && started == 0)
    core::raise_usage("cli", 23,
                      {.what = "--max-restarts is for ranks that are started here",
                       .found = "no --nproc-per-node",
                       .remedy = "leave restarts to the launcher of the ranks"});
  const int ranks = place ? place->size : std::max(1, started);
  const bool first = !place || place->rank == 0;
  config::RunConfig settings =
      config::load_run_config(file, overrides, ranks, [&](const config::RunConfig& run, config::Refusals& refusals) {
        config::judge_places(run, refusals);
        if (!first) return;
        config::judge_outputs(run, refusals);
        // Where nothing is refused they are loaded soon, and judged then.
        if (!refusals.empty()) config::detail::Training<void>::judge_functions(run, refusals);
      });
  const auto patience = static_cast<double>(settings.ddp_timeout.value_or(config::default_ddp_timeout));
  if (plans && place)
    core::raise_usage("cli", 23,
                      {.what = "--dry-run is one process", .found = "RANK and WORLD_SIZE in the environment"});
  use_tried_kernels(config::device_of(settings), first);
  if (plans) return plan_here(settings);
  if (started > 1) {
    overrides.insert(overrides.begin(), {"train", file});
    return run_ranks(started, overrides, patience, {.most = std::max(0, restarts), .output_dir = settings.output_dir});
  }
  return place ? train_rank(*place, patience, settings) : train_here(settings);
}

}  // namespace

Run train(CLI::App& app) {
  const auto file = std::make_shared<std::string>();
  const auto dry = std::make_shared<bool>(false);
  app.prefix_command();
  app.add_option("CONFIG", *file, "a configuration file (YAML) with axolotl's keys")->type_name("");
  app.add_flag(
      "--dry-run", *dry,
      "loads and checks everything, shows the plan, three rows as the model sees them and about how long and how "
      "much memory it takes; trains and writes nothing");
  app.footer(R"(
Everything after CONFIG overrides the file: --key value, --section.key value (dashes or underscores), for example
  rlalgo train config.yaml --learning-rate 2e-6 --trl.num-generations 16
  rlalgo train config.yaml --resume-from-checkpoint out/checkpoint-40
--nproc-per-node N (or --num-processes N) trains on N ranks of this machine (docs/distributed.md), and --max-restarts M starts all of them anew from the
last checkpoint where one fails, M times at most; the ranks of torchrun and the like are taken from RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT.
The keys are in docs/configuration.md. Ctrl-C ends the step, saves a checkpoint and exits with 130; SIGTERM,
SIGHUP and SIGQUIT do the same, with 128 + the signal.)");
  return [&app, file, dry] {
    std::vector<std::string> rest = app.remaining();
    if (*dry) rest.emplace_back("--dry-run");
    return train_as(*file, std::move(rest));
  };
}

}  // namespace rlalgo::cli
