// Reads a YAML or JSON configuration file into a tree that remembers lines.
//
// Anchors, aliases and merge keys (<<) are resolved; of a key written twice the last wins, with a warning, as in
// PyYAML. Tags other than YAML's own scalar and collection tags are refused. A directory stands for the only .yml/.yaml
// file in it. What the file may hold, its aliases resolved, is bounded (DocumentLimits), and there is one document in it.
//
// Errors (usage): [rlalgo.config.1] the file cannot be read, or is no regular file; [rlalgo.config.2] not YAML, with
// file:line:column; [rlalgo.config.3] not one mapping of keys; [rlalgo.config.28] beyond one of the limits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/yaml_reader.hpp>
#include <rlalgo/config/node.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::config {

struct Document {
  std::string file;  // as given, or the file found in a directory
  std::string text;  // its bytes
  Node root;         // a mapping
  std::vector<std::string> warnings;
};

namespace detail {

// JSON may be indented with tabs, YAML may not: outside of strings a tab is a blank.
inline std::string without_json_tabs(std::string text) {
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      in_string = !in_string;
    else if (!in_string && text[i] == '\t')
      text[i] = ' ';
  }
  return text;
}

inline std::filesystem::path only_yaml_file(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".yml" || entry.path().extension() == ".yaml") found.push_back(entry.path());
  if (found.size() == 1) return found.front();
  core::raise_usage("config", 1,
                    {.what = "a directory was given as the configuration",
                     .found = std::to_string(found.size()) + " .yml or .yaml files in it",
                     .expected = "exactly one, or the name of a file",
                     .where = directory.string()});
}

}  // namespace detail

// One YAML value, such as a command-line override.
[[nodiscard]] inline Node parse_value(const std::string& text, const Place& place) {
  std::vector<std::string> warnings;
  Node node = detail::YamlReader(place.command_line() ? place.text() : place.file, text, warnings).read();
  const auto stamp = [&](const auto& self, Node& at) -> void {
    at.place = place;
    for (Node& item : at.items) self(self, item);
    for (Member& member : at.members) {
      member.place = place;
      self(self, member.value);
    }
  };
  stamp(stamp, node);
  return node;
}

// The tree of a configuration text; `file` names it in messages.
[[nodiscard]] inline Document parse_document(std::string text, const std::string& file) {
  Document document{.file = file, .text = std::move(text), .root = {}, .warnings = {}};
  const bool json = std::filesystem::path(file).extension() == ".json";
  const std::string blanks = json ? detail::without_json_tabs(document.text) : std::string();
  document.root = detail::YamlReader(file, json ? blanks : document.text, document.warnings).read();
  if (document.root.kind != Kind::mapping) {
    core::raise_usage("config", 3,
                      {.what = "the configuration is not a mapping of keys",
                       .found = document.root.kind == Kind::null ? "an empty file" : describe(document.root),
                       .expected = "lines such as base_model: path",
                       .where = file});
  }
  return document;
}

// Reads a configuration file, or the only one in a directory.
[[nodiscard]] inline Document load_document(const std::filesystem::path& given) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::is_directory(given, error) ? detail::only_yaml_file(given) : given;
  os::FileText file = os::read_regular_file(path, DocumentLimits{}.file);
  if (!file.problem.empty())
    core::raise_usage("config", 1,
                      {.what = "cannot read the configuration", .found = file.problem, .where = path.string()});
  return parse_document(std::move(file.text), path.string());
}

}  // namespace rlalgo::config
