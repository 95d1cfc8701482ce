#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/config/key_page.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

// The keys whose names have one of the words in them; all where there is no word.
void print_keys(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  bool found = false;
  for (const config::KeySection& section : config::key_sections())
    for (const config::Key& row : section.rows) {
      names.emplace_back(row.name);
      names.emplace_back(row.name.substr(row.name.rfind('.') + 1));
      bool asked = words.empty();
      for (const std::string& word : words) asked = asked || row.name.find(word) != std::string_view::npos;
      if (!asked || !config::is_documented(row)) continue;
      found = true;
      std::cout << config::plain_text(row, section.rows);
    }
  if (found) return;
  const std::string nearest = core::nearest_name(words.front(), names);
  core::raise_usage("cli", 32,
                    {.what = "there is no such key",
                     .found = words.front(),
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
  };
  const auto options = std::make_shared<Options>();
  app.add_option("word", options->words, "parts of names; none: every key")->type_name("WORD");
  app.add_option("--markdown", options->table, "prints a table of docs/configuration.md instead")->type_name("SECTION");
  return [options] {
    if (options->table.empty())
      print_keys(options->words);
    else
      print_table(options->table);
    require_output();
    return 0;
  };
}

}  // namespace rlalgo::cli
