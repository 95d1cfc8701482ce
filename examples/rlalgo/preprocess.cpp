#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/outside.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/places.hpp>
#include <rlalgo/config/train.hpp>
#include <rlalgo/run/output_trial.hpp>

#include "log.hpp"
#include "row_counter.hpp"
#include "shown_rows.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

constexpr std::size_t shown_rows = 5;

// The rows of a method that prepares nothing: they are tokenized when a run starts.
int show_rows(const config::RunConfig& settings) {
  for (const std::string& text : settings.warnings) warning(text);
  RowCounter counter;
  config::dry_run(settings, config::DryRun::rows,
                  {.note = note,
                   .progress = counter.progress(),
                   .prepared = [&] { counter.end(); },
                   .planned =
                       [](const assembly::Overview& overview) {
                         std::cout << assembly::overview_lines(overview).front() << "\n";
                         print_rows(overview, shown_rows, RowText::tokens);
                       }});
  return 0;
}

int prepare(const std::string& file, std::vector<std::string> rest) {
  if (file.empty())
    core::raise_usage("cli", 9,
                      {.what = "`rlalgo preprocess` needs a configuration file",
                       .expected = "rlalgo preprocess CONFIG.yaml [--debug] [--key value …]"});
  const auto debug = std::find(rest.begin(), rest.end(), "--debug");
  const bool show = debug != rest.end();
  if (show) rest.erase(debug);
  config::RunConfig settings = config::load_run_config(
      file, rest, 1,
      [](const config::RunConfig& run, config::Refusals& refusals) { config::judge_places(run, refusals); });
  if (!config::is_preference(settings) && show) return show_rows(settings);
  if (!config::is_preference(settings))
    core::raise_usage("cli", 10,
                      {.what = "`rlalgo preprocess` prepares preference data",
                       .found = "rl: " + settings.rl,
                       .expected = "rl: dpo, ipo, kto, orpo, simpo or cpo",
                       .remedy = "prompts of online methods are tokenized when the run starts; --debug shows them"});
  for (const std::string& text : settings.warnings) warning(text);
  if (!settings.preference.dataset_prepared_path) settings.preference.dataset_prepared_path = "last_run_prepared";
  config::check_places(settings);
  config::take_outside(settings, *config::world_of(settings), {});
  const os::OutsideInEnvironment environment(settings.outside);
  const run::OutputTrial output(*settings.preference.dataset_prepared_path);
  const assembly::LanguageModel model =
      assembly::load_text_half(config::language_model_of(settings), config::find_model(settings));
  for (const std::string& note : model.notes) std::cout << note << "\n";
  RowCounter counter;
  const assembly::PreferenceData data =
      assembly::load_preferences(config::preferences_of(settings, model), model, counter.progress());
  counter.end();
  for (const std::string& note : data.notes) std::cout << note << "\n";
  if (show) print_rows(assembly::shown_answers(data.train, model), shown_rows, RowText::tokens);
  std::cout << "prepared in " << *settings.preference.dataset_prepared_path
            << "; train with dataset_prepared_path: " << *settings.preference.dataset_prepared_path << "\n";
  return 0;
}

}  // namespace

Run preprocess(CLI::App& app) {
  const auto file = std::make_shared<std::string>();
  const auto debug = std::make_shared<bool>(false);
  app.prefix_command();
  app.add_option("CONFIG", *file, "a configuration file (YAML) with preference data; with --debug of any method")
      ->type_name("");
  app.add_flag("--debug", *debug,
               "prints the first rows, of any method, token by token with ids; what carries loss is coloured, or "
               "between ⟦ and ⟧");
  app.footer(
      "\nEverything after CONFIG that is no option of this list overrides the file: --key value, --section.key value.");
  return [&app, file, debug] {
    std::vector<std::string> rest = app.remaining();
    if (*debug) rest.emplace_back("--debug");
    return prepare(*file, std::move(rest));
  };
}

}  // namespace rlalgo::cli
