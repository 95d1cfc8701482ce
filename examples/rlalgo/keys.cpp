// What is known of the keys of a configuration (config/key.hpp): for people, for the documentation, for editors.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/key_page.hpp>
#include <rlalgo/config/key_schema.hpp>
#include <rlalgo/config/names_elsewhere.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

// How well a word finds a key, best first.
enum class Match { name, part_of_name, sentence, none };

// `--trl.max-turns` is trl.max_turns.
std::string as_key(std::string word) {
  while (word.starts_with("-")) word.erase(0, 1);
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

Match match(const config::Key& row, const config::Keys& rows, const std::string& word) {
  std::vector<std::string_view> names = config::spellings_of(row, rows);
  names.push_back(row.name);
  Match best = Match::none;
  for (const std::string_view name : names) {
    const std::string_view own = name.substr(name.rfind('.') + 1);
    if (name == word || own == word || name.starts_with(word + ".")) return Match::name;
    const bool dotted = word.find('.') != std::string::npos;
    if ((dotted ? name : own).find(word) != std::string_view::npos) best = Match::part_of_name;
  }
  if (best == Match::none && row.says.find(word) != std::string_view::npos) best = Match::sentence;
  return best;
}

// Prints the keys that the word finds, by the best kind of match that there is.
bool print_found(const std::string& word) {
  Match best = Match::none;
  for (const config::KeySection& section : config::key_sections())
    for (const config::Key& row : section.rows)
      if (config::is_documented(row)) best = std::min(best, match(row, section.rows, word));
  if (best == Match::none) return false;
  for (const config::KeySection& section : config::key_sections())
    for (const config::Key& row : section.rows)
      if (config::is_documented(row) && match(row, section.rows, word) == best)
        std::cout << config::plain_text(row, section.rows);
  return true;
}

void print_keys(const std::string& asked) {
  const std::string word = as_key(asked);
  const auto elsewhere = config::written_here(word, "");
  if (elsewhere && !elsewhere->key.empty()) {
    std::cout << word << ": " << elsewhere->remedy << "\n";
    (void)print_found(elsewhere->key);
    return;
  }
  if (print_found(word)) return;
  for (const auto& table : {config::idle_keys(), config::idle_trl_keys(), config::lacking_keys(),
                            config::lacking_trl_keys(), config::removed_keys()})
    for (const config::RecognisedKey& key : config::each_key(table))
      if (key.key == word) return void(std::cout << word << ": not here, or without effect: " << key.reason << "\n");
  if (elsewhere) return void(std::cout << word << ": no key; " << elsewhere->remedy << "\n");
  std::vector<std::string> names;
  for (const config::Key& row : config::every_key()) {
    names.emplace_back(row.name);
    names.emplace_back(row.name.substr(row.name.rfind('.') + 1));
  }
  const std::string nearest = core::nearest_name(word, names);
  core::raise_usage("cli", 32,
                    {.what = "there is no such key",
                     .found = asked,
                     .expected = nearest.empty() ? "" : nearest + "?",
                     .remedy = "run `rlalgo keys` for all of them"});
}

void print_table(const std::string& name) {
  std::vector<std::string> names;
  for (const config::KeySection& section : config::key_sections()) {
    if (section.name == name) return void(std::cout << config::markdown_table(section));
    names.emplace_back(section.name);
  }
  core::raise_usage(
      "cli", 32, {.what = "there is no such table of keys", .found = name, .expected = config::detail::joined(names)});
}

}  // namespace

Run keys(CLI::App& app) {
  struct Options {
    std::vector<std::string> words;
    std::string table;
    bool schema = false;
  };
  const auto options = std::make_shared<Options>();
  app.add_option("word", options->words,
                 "a key, a part of its name, a word of its sentence, or its name in TRL; none: every key")
      ->type_name("WORD");
  app.add_flag("--json-schema", options->schema,
               "prints a JSON schema of configurations instead, for editors (yaml-language-server) and programs");
  app.add_option("--markdown", options->table, "prints a table of docs/configuration.md instead")->type_name("SECTION");
  return [options] {
    if (options->schema)
      std::cout << config::key_schema().dump(1) << "\n";
    else if (!options->table.empty())
      print_table(options->table);
    else if (options->words.empty())
      for (const config::KeySection& section : config::key_sections())
        for (const config::Key& row : section.rows)
          if (config::is_documented(row)) std::cout << config::plain_text(row, section.rows);
    for (const std::string& word : options->words) print_keys(word);
    return 0;
  };
}

}  // namespace rlalgo::cli
