// Reads a YAML or JSON configuration file into a tree that remembers lines.
//
// Anchors, aliases and merge keys (<<) are resolved; of a key written twice the last wins, with a warning, as in
// PyYAML. Tags other than YAML's own scalar and collection tags are refused. A directory stands for the only .yml/.yaml
// file in it. What the file may hold, its aliases resolved, is bounded (DocumentLimits). The only header that includes
// yaml-cpp.
//
// Errors (usage): [rlalgo.config.1] the file cannot be read, or is no regular file; [rlalgo.config.2] not YAML, with
// file:line:column; [rlalgo.config.3] not one mapping of keys; [rlalgo.config.28] beyond one of the limits.
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/config/node.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/regular_file.hpp>

namespace rlalgo::config {

// What a configuration may hold at most. An alias counts as what it stands for.
struct DocumentLimits {
  std::uint64_t file = std::uint64_t{1} << 20U;  // bytes
  std::size_t depth = 64;                        // levels of lists and sections
  std::size_t values = 100'000;
  std::size_t text = std::size_t{16} << 20U;  // bytes of all values
  std::size_t keys = 10'000;                  // of one section
};

struct Document {
  std::string file;  // as given, or the file found in a directory
  std::string text;  // its bytes
  Node root;         // a mapping
  std::vector<std::string> warnings;
};

namespace detail {

// Whether the quoted scalar that begins at (line, column), both 0-based, column in characters, is closed. yaml-cpp
// reads an unclosed one up to the end of the file without a word.
inline bool quote_is_closed(std::string_view text, int line, int column) {
  std::size_t at = 0;
  for (; line > 0; --line) at = text.find('\n', at) + 1;
  for (; column > 0 && at < text.size(); --column) do
      ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U);
  if (at >= text.size() || (text[at] != '"' && text[at] != '\'')) return true;  // the mark is on a tag or an anchor
  const char quote = text[at];
  for (++at; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\')
      ++at;
    else if (text[at] == quote && quote == '\'' && at + 1 < text.size() && text[at + 1] == quote)
      ++at;
    else if (text[at] == quote)
      return true;
  }
  return false;
}

class YamlReader {
 public:
  YamlReader(std::string file, std::string_view text, std::vector<std::string>& warnings)
      : file_(std::move(file)), text_(text), warnings_(warnings) {}

  [[nodiscard]] Place place(const YAML::Mark& mark) const {
    if (mark.is_null()) return {.file = file_};
    return {.file = file_, .line = mark.line + 1, .column = mark.column + 1};
  }
  [[noreturn]] void fail(const Place& place, const std::string& found, const std::string& remedy = {}) const {
    core::raise_usage(
        "config", 2,
        {.what = "the configuration is not valid YAML",
         .found = found,
         .where =
             place.file + (place.line > 0 ? ":" + std::to_string(place.line) + ":" + std::to_string(place.column) : ""),
         .remedy = remedy});
  }

  [[noreturn]] void too_much(const Place& place, const std::string& found) const {
    core::raise_usage("config", 28,
                      {.what = "the configuration is larger than what is read",
                       .found = found,
                       .where = place.text(),
                       .remedy = "anchors count wherever they are used (*name, <<); keep data in files of its own"});
  }

  Node convert(const YAML::Node& source, std::size_t depth = 0) {
    if (depth > limits_.depth)
      fail(place(source.Mark()),
           "values nested more than " + std::to_string(limits_.depth) + " deep, or an alias inside itself");
    if (++values_ > limits_.values)
      too_much(place(source.Mark()), "more than " + std::to_string(limits_.values) + " values");
    check_tag(source);
    switch (source.Type()) {
      case YAML::NodeType::Scalar:
        return scalar(source);
      case YAML::NodeType::Sequence:
        return sequence(source, depth);
      case YAML::NodeType::Map:
        return mapping(source, depth);
      default:
        break;
    }
    Node null;
    null.place = place(source.Mark());
    return null;
  }

 private:
  void check_tag(const YAML::Node& source) const {
    const std::string& tag = source.Tag();
    if (tag.empty() || tag == "?" || tag == "!") return;
    for (const char* known : {"str", "int", "float", "bool", "null", "seq", "map"})
      if (tag == std::string("tag:yaml.org,2002:") + known) return;
    fail(place(source.Mark()), "the tag " + tag, "remove the tag: only plain YAML values are read");
  }
  [[nodiscard]] Node scalar(const YAML::Node& source) {
    const std::string& tag = source.Tag();
    count_text(source);
    if (tag == "!" && !quote_is_closed(text_, source.Mark().line, source.Mark().column))
      fail(place(source.Mark()), "a quote that is never closed");
    return make_scalar(source.Scalar(), tag == "!" || tag == "tag:yaml.org,2002:str", place(source.Mark()));
  }
  void count_text(const YAML::Node& source) {
    bytes_ += source.Scalar().size();
    if (bytes_ > limits_.text)
      too_much(place(source.Mark()), "values of more than " + std::to_string(limits_.text) + " bytes in all");
  }
  [[nodiscard]] Node sequence(const YAML::Node& source, std::size_t depth) {
    Node out;
    out.kind = Kind::sequence;
    out.place = place(source.Mark());
    for (const auto& item : source) out.items.push_back(convert(item, depth + 1));
    return out;
  }
  [[nodiscard]] Node mapping(const YAML::Node& source, std::size_t depth) {
    Node out;
    out.kind = Kind::mapping;
    out.place = place(source.Mark());
    std::vector<Node> merged;
    for (const auto& entry : source) {
      const Place at = place(entry.first.Mark());
      if (!entry.first.IsScalar()) fail(at, "a key that is not a word");
      if (out.members.size() == limits_.keys || merged.size() == limits_.keys) too_many_keys(at);
      count_text(entry.first);
      const std::string key = entry.first.Scalar();
      Node value = convert(entry.second, depth + 1);
      if (value.place.line == 0) value.place = at;
      if (key == "<<" && entry.first.Tag() != "!") {
        if (value.kind == Kind::sequence)
          std::move(value.items.begin(), value.items.end(), std::back_inserter(merged));
        else
          merged.push_back(std::move(value));
        continue;
      }
      const auto twin =
          std::find_if(out.members.begin(), out.members.end(), [&](const Member& m) { return m.key == key; });
      if (twin != out.members.end()) {
        warnings_.push_back("the key " + key + " is written twice, at " + twin->place.text() + " and at " + at.text() +
                            "; the last one counts");
        out.members.erase(twin);
      }
      out.members.push_back({key, at, std::move(value)});
    }
    for (Node& base : merged) {
      if (base.kind != Kind::mapping) fail(base.place, "<< with something else than a mapping");
      for (Member& member : base.members) {
        if (out.find(member.key) != nullptr) continue;
        if (out.members.size() == limits_.keys) too_many_keys(base.place);
        out.members.push_back(std::move(member));
      }
    }
    return out;
  }
  [[noreturn]] void too_many_keys(const Place& at) const {
    too_much(at, "a section of more than " + std::to_string(limits_.keys) + " keys");
  }

  std::string file_;
  std::string_view text_;
  std::vector<std::string>& warnings_;
  DocumentLimits limits_;
  std::size_t values_ = 0, bytes_ = 0;  // converted so far
};

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
  detail::YamlReader reader(place.command_line() ? place.text() : place.file, text, warnings);
  try {
    Node node = reader.convert(YAML::Load(text));
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
  } catch (const YAML::Exception& error) {
    core::raise_usage("config", 2, {.what = "the value is not valid YAML", .found = error.msg, .where = place.text()});
  }
}

// The tree of a configuration text; `file` names it in messages.
[[nodiscard]] inline Document parse_document(std::string text, const std::string& file) {
  Document document{.file = file, .text = std::move(text), .root = {}, .warnings = {}};
  detail::YamlReader reader(file, document.text, document.warnings);
  try {
    const bool json = std::filesystem::path(file).extension() == ".json";
    const std::vector<YAML::Node> roots =
        YAML::LoadAll(json ? detail::without_json_tabs(document.text) : document.text);
    if (roots.size() > 1)
      reader.fail(reader.place(roots[1].Mark()), "a second document after ---", "keep one document in the file");
    if (!roots.empty()) document.root = reader.convert(roots.front());
  } catch (const YAML::Exception& error) {
    reader.fail(reader.place(error.mark), error.msg,
                "check the indentation (spaces, never tabs), colons and quotes around that place");
  }
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
  core::FileText file = core::read_regular_file(path, DocumentLimits{}.file);
  if (!file.problem.empty())
    core::raise_usage("config", 1,
                      {.what = "cannot read the configuration", .found = file.problem, .where = path.string()});
  return parse_document(std::move(file.text), path.string());
}

}  // namespace rlalgo::config
