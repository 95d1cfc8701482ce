// Reads the rows of a section (config/key.hpp).
//
// Errors (usage): those of config/reader.hpp; [rlalgo.config.10] a word that the file format has and this build has not.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/key.hpp>

namespace rlalgo::config::detail {

// The name within the section of the reader.
[[nodiscard]] inline std::string own_name(const Reader& reader, std::string_view full) {
  return std::string(full.substr(reader.prefix().size()));
}

inline void read_word(const Key& row, const Node& node) {
  Node word = node;
  word.kind = Kind::string;
  word.text = chosen(std::string(row.name), node, row.words.known);
  const auto& supported = row.words.supported;
  if (std::find(supported.begin(), supported.end(), word.text) == supported.end())
    core::raise_usage("config", 10,
                      {.what = "this build has no " + std::string(row.name) + " " + word.text,
                       .expected = joined(supported),
                       .where = node.place.text()});
  row.target.read(row.target.at, word, std::string(row.name));
}

// A value that stands for another one; else the value itself.
[[nodiscard]] inline Node meant(const Key& row, const Node& node) {
  for (const auto& [word, stands_for] : row.synonyms) {
    const bool same = node.kind == Kind::boolean ? word == (node.boolean ? "true" : "false")
                                                 : node.kind == Kind::string && lower_equal(node.text, word);
    if (!same) continue;
    Node out = node;
    out.kind = Kind::string;
    out.text = stands_for;
    return out;
  }
  return node;
}

inline void read_value(const Key& row, const Node& node) {
  if (row.reader) return row.reader(node);
  if (!row.lines.empty() && node.kind != Kind::mapping) raise_type(std::string(row.name), node, std::string(row.lines));
  if (!row.words.known.empty()) return read_word(row, node);
  row.target.read(row.target.at, node, std::string(row.name));
}

// One row that applies; a row with neither a member nor a reader is read by other means.
inline void read_row(Reader& reader, const Key& row) {
  if (!row.reader && row.target.read == nullptr) return;
  const std::string own = own_name(reader, row.name);
  if (row.target.record != nullptr && (!row.if_written || reader.section().find(own) != nullptr))
    row.target.record(row.target.at, std::string(row.name), reader.findings());
  const Node* node = reader.take(own);
  if (node == nullptr || reader.findings().refusals.distrusts(std::string(row.name))) return;  // refused already
  if (row.renamed)
    reader.findings().warnings.push_back(std::string(row.name) + " is now " + std::string(row.stands_for));
  reader.judge(own, [&] { read_value(row, row.synonyms.empty() ? *node : meant(row, *node)); });
}

// In order: whether a row applies may hang on those before it.
inline void read_rows(Reader& reader, const Keys& rows) {
  for (const Key& row : rows)
    if (row.idle_because().empty()) read_row(reader, row);
}

// The same of rows of two sections; those of the second have its prefix.
inline void read_rows(Reader& top, Reader& section, const Keys& rows) {
  for (const Key& row : rows)
    if (row.idle_because().empty()) read_row(row.name.starts_with(section.prefix()) ? section : top, row);
}

// What was read and is on, and has no effect.
inline void say_unused(Reader& reader, const Key& row, const std::string& reason) {
  const Node* node = reader.section().find(own_name(reader, row.name));
  if (node != nullptr && is_on(*node))
    reader.findings().warnings.push_back(std::string(row.name) + " (" + node->place.text() +
                                         ") has no effect: " + reason);
}

// Names the rows that do not apply and are on. `because` stands for the reasons of all of them.
inline void say_idle(Reader& reader, const Keys& rows, std::string_view because = {}) {
  for (const Key& row : rows) {
    if (!row.name.starts_with(reader.prefix()) || (reader.prefix().empty() && row.name.find('.') != row.name.npos))
      continue;
    const std::string_view reason = because.empty() ? row.idle_because() : because;
    if (reason.empty()) continue;
    apply_idle(reader, row.name.substr(reader.prefix().size()), reason);
  }
}

}  // namespace rlalgo::config::detail
