#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/outside.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/places.hpp>
#include <rlalgo/run/output_trial.hpp>
#include <rlalgo/run/terminal.hpp>

#include "log.hpp"
#include "row_counter.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

// Tokens one by one; colour tells prompt (grey), chosen (green), rejected (red). Underlined tokens carry loss.
void print_answer(const data::AnswerSet& set, std::size_t i, const config::LanguageModel& model, bool colours) {
  const data::Answer answer = set.answer(i);
  const auto paint = [&](std::span<const data::TokenId> ids, const char* code) {
    for (const data::TokenId id : ids) {
      std::string text = model.tokenizer.decode(std::span(&id, 1), false);
      for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 4) text.replace(at, 1, "⏎");
      if (colours) std::cout << "\033[" << code << "m";
      std::cout << text;
      if (colours) std::cout << "\033[0m";
      std::cout << "(" << id << ") ";
    }
  };
  std::cout << (answer.desirable ? "chosen   " : "rejected ") << answer.prompt_tokens << " + "
            << answer.completion_tokens() << " tokens: ";
  paint(answer.prompt(), "90");
  if (!colours) std::cout << "| ";
  paint(answer.completion(), answer.desirable ? "32;4" : "31;4");
  std::cout << "\n";
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
  if (!config::is_preference(settings))
    core::raise_usage("cli", 10,
                      {.what = "`rlalgo preprocess` prepares preference data",
                       .found = "rl: " + settings.rl,
                       .expected = "rl: dpo, ipo, kto, orpo, simpo or cpo",
                       .remedy = "prompts of online methods are tokenized when the run starts"});
  for (const std::string& text : settings.warnings) warning(text);
  if (!settings.preference.dataset_prepared_path) settings.preference.dataset_prepared_path = "last_run_prepared";
  config::check_places(settings);
  config::take_outside(settings, *config::world_of(settings), {});
  const core::OutsideInEnvironment environment(settings.outside);
  const run::OutputTrial output(*settings.preference.dataset_prepared_path);
  const config::LanguageModel model = config::load_text_half(settings, config::find_model(settings));
  for (const std::string& note : model.notes) std::cout << note << "\n";
  RowCounter counter;
  const config::PreferenceData data = config::load_preferences(
      settings, model, config::text_tools(model, settings.trl.chat_template_kwargs), counter.progress());
  counter.end();
  for (const std::string& note : data.notes) std::cout << note << "\n";
  const std::size_t shown = show ? std::min<std::size_t>(5, data.train->examples()) * data.train->per_example() : 0;
  for (std::size_t i = 0; i < shown; ++i) print_answer(*data.train, i, model, run::shows_colours(STDOUT_FILENO));
  std::cout << "prepared in " << *settings.preference.dataset_prepared_path
            << "; train with dataset_prepared_path: " << *settings.preference.dataset_prepared_path << "\n";
  return 0;
}

}  // namespace

Run preprocess(CLI::App& app) {
  const auto file = std::make_shared<std::string>();
  const auto debug = std::make_shared<bool>(false);
  app.prefix_command();
  app.add_option("CONFIG", *file, "a configuration file (YAML) with preference data")->type_name("");
  app.add_flag("--debug", *debug, "prints the first rows token by token, with ids; tokens with loss are underlined");
  app.footer(
      "\nEverything after CONFIG that is no option of this list overrides the file: --key value, --section.key value.");
  return [&app, file, debug] {
    std::vector<std::string> rest = app.remaining();
    if (*debug) rest.emplace_back("--debug");
    return prepare(*file, std::move(rest));
  };
}

}  // namespace rlalgo::cli
