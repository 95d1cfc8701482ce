// What the row of a key says, as text: for `rlalgo keys`, and as the tables of docs/configuration.md (scripts/key_tables.py).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/keys.hpp>

namespace rlalgo::config {

// The default, from the member before anything is read; "–": not set.
[[nodiscard]] inline std::string default_of(const Key& row) {
  if (!row.shown.empty()) return std::string(row.shown);
  if (row.target.json == nullptr) return "–";
  const data::Json value = row.target.json(row.target.at);
  if (value.is_null() || value.empty() || value == "") return "–";
  if (value.is_number_float()) return spelled(value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

[[nodiscard]] inline std::string values_of(const Key& row) {
  if (!row.words.supported.empty()) return detail::joined(row.words.supported);
  const std::string form(row.form.empty() ? row.target.form : row.form);
  if (!row.ranged) return form;
  const std::string range = row.range.text();
  const bool number = form == "number";
  return number && range == "a finite number" ? form : (number ? "" : form + ": ") + range;
}

// The other spellings of a key.
[[nodiscard]] inline std::vector<std::string_view> spellings_of(const Key& row, const Keys& rows) {
  std::vector<std::string_view> out;
  for (const Key& other : rows)
    if (other.stands_for == row.name) out.push_back(other.name);
  return out;
}

// The sentence, and where the key belongs.
[[nodiscard]] inline std::string meaning_of(const Key& row, const Keys& rows) {
  std::string out(row.says);
  const auto add = [&out](const std::string& more) { out += (out.empty() ? "" : "; ") + more; };
  for (const std::string_view other : spellings_of(row, rows)) add("also `" + std::string(other) + "`");
  if (!row.losses.empty()) add("`loss_type`: " + listed_words(row.losses));
  if (!row.estimators.empty()) add("`advantage_estimator`: " + listed_words(row.estimators));
  if (!row.modes.empty()) add("`mode`: " + listed_words(row.modes));
  if (!row.recipes.empty()) add("`rl`: " + listed_words(row.recipes));
  return out;
}

// Rows that are documented: not other spellings, and not those that never have an effect.
[[nodiscard]] inline bool is_documented(const Key& row) { return row.stands_for.empty() && !row.says.empty(); }

[[nodiscard]] inline std::string markdown_table(const KeySection& section) {
  std::string out = "| key (default) | values | meaning |\n|---|---|---|\n";
  const auto cell = [](std::string text) {
    for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
    return text;
  };
  for (const Key& row : section.rows)
    if (is_documented(row))
      out += "| `" + std::string(row.name.substr(section.prefix.size())) + "` (" + default_of(row) + ") | " +
             cell(values_of(row)) + " | " + cell(meaning_of(row, section.rows)) + " |\n";
  return out;
}

// The methods that read a key, for a line of text; "": all of them.
[[nodiscard]] inline std::string methods_reading(std::string_view name) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> all = [] {
    std::map<std::string, std::vector<std::string>, std::less<>> out;
    for_each_reading([&](const Recipe& recipe, const Keys& rows) {
      for (const Key& row : rows) {
        std::vector<std::string>& readers = out[std::string(row.name)];
        const bool reads = row.recipes.empty() || among(recipe.name, row.recipes);
        if (reads && (readers.empty() || readers.back() != recipe.name)) readers.emplace_back(recipe.name);
      }
    });
    return out;
  }();
  const auto found = all.find(name);
  if (found == all.end() || found->second.size() == recipes().size()) return "";
  const std::vector<std::string>& read = found->second;
  std::vector<std::string> online;
  for (const Recipe& recipe : recipes())
    if (recipe.generates) online.emplace_back(recipe.name);
  return read == online ? "all that generate (" + detail::joined(online) + ")" : detail::joined(read);
}

// A key for a terminal.
[[nodiscard]] inline std::string plain_text(const Key& row, const Keys& rows) {
  std::string values = values_of(row);
  const std::string_view form = row.form.empty() ? row.target.form : row.form;
  if (!values.starts_with(form) && row.words.known.empty()) values = std::string(form) + ", " + values;
  const std::string shown = default_of(row), methods = methods_reading(row.name);
  std::string out = std::string(row.name) + ": " + values + (shown == "–" ? "" : " (default: " + shown + ")") +
                    "\n    " + meaning_of(row, rows) + "\n";
  if (!methods.empty()) out += "    methods: " + methods + "\n";
  if (!row.resume.why.empty()) out += "    a resumed run may change it: " + std::string(row.resume.why) + "\n";
  return out;
}

}  // namespace rlalgo::config
