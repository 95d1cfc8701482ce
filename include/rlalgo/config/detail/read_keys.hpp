// The recognised-key tables applied to a section, and the choice among known and supported names.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/recognised.hpp>
#include <rlalgo/config/supported.hpp>

namespace rlalgo::config::detail {

// null and false are off, and a section whose `enabled` is; so are 0 and 1 for the sizes among the lacking keys.
inline bool is_on(const Node& node) {
  if (node.kind == Kind::null) return false;
  if (node.kind == Kind::boolean) return node.boolean;
  if (const Node* enabled = node.kind == Kind::mapping ? node.find("enabled") : nullptr; enabled != nullptr)
    return is_on(*enabled);
  return !(node.kind == Kind::string && (node.text == "false" || node.text == "False"));
}

inline bool is_size(const std::string& key) { return key.ends_with("_size") || key.ends_with("_degree"); }

[[noreturn]] inline void raise_lacking(const std::string& key, const Node& node, const std::string& remedy) {
  core::raise_usage(
      "config", 10,
      {.what = "this build has no " + key,
       .found = node.kind == Kind::mapping ? "a section" : key + ": " + (node.scalar() ? node.text : "[…]"),
       .where = node.place.text(),
       .remedy = remedy});
}

// What is not here, as a value of `key` (within the section); `what` names it. Where it would not change a number of the run
// (`computes` is false) and --allow-unsupported is given: a warning.
inline void refuse_lacking(Reader& reader, const std::string& key, const std::string& what, const Node& node,
                           const std::string& remedy, bool computes = true) {
  if (!computes && reader.findings().allow_unsupported) {
    reader.findings().warnings.push_back(reader.prefix() + what + " (" + node.place.text() +
                                         ") is not here and is left out (--allow-unsupported): " + remedy);
    return;
  }
  const std::string way_out = computes ? "" : ", or leave it out with --allow-unsupported";
  reader.judge(key, [&] { raise_lacking(reader.prefix() + what, node, remedy + way_out); });
}

inline void apply_lacking(Reader& reader, const std::vector<RecognisedKey>& keys) {
  for (const RecognisedKey& entry : keys) {
    const std::string key(entry.key);
    if (reader.knows(key)) continue;  // the recipe read it
    const Node* node = reader.take(key);
    if (node == nullptr || !is_on(*node)) continue;
    if (is_size(key) && node->kind == Kind::integer && node->integer <= 1) continue;
    if (node->kind == Kind::sequence && node->items.empty()) continue;
    refuse_lacking(reader, key, key, *node, std::string(entry.reason), entry.computes);
  }
}

inline void apply_idle(Reader& reader, const std::vector<RecognisedKey>& keys) {
  for (const RecognisedKey& entry : keys) {
    const std::string key(entry.key);
    if (reader.knows(key)) continue;  // the recipe read it
    const Node* node = reader.take(key);
    if (node == nullptr || !is_on(*node)) continue;
    reader.findings().warnings.push_back(reader.prefix() + key + " (" + node->place.text() +
                                         ") has no effect: " + std::string(entry.reason));
  }
}

inline void apply_lacking(Reader& reader, std::span<const Reason> reasons) { apply_lacking(reader, each_key(reasons)); }
inline void apply_idle(Reader& reader, std::span<const Reason> reasons) { apply_idle(reader, each_key(reasons)); }
inline void apply_idle(Reader& reader, std::string_view key, std::string_view reason) {
  apply_idle(reader, std::vector<RecognisedKey>{{key, reason}});
}

inline void apply_prefixes(Reader& reader, std::span<const Reason> prefixes) {
  for (const Member& member : reader.section().members)
    for (const RecognisedKey& entry : each_key(prefixes))
      if (member.key.starts_with(entry.key) && !reader.knows(member.key)) apply_idle(reader, member.key, entry.reason);
}

inline void apply_removed(Reader& reader, std::span<const Reason> reasons) {
  for (const RecognisedKey& entry : each_key(reasons)) {
    const std::string key(entry.key);
    if (const Node* node = reader.take(key); node != nullptr)
      reader.refuse_own(13, {.what = "the key " + reader.prefix() + key + " was removed from the file format",
                             .where = node->place.text(),
                             .remedy = std::string(entry.reason)});
  }
}

// A name out of `names.known`; one that is known and not supported is an error of its own.
inline bool read_name(Reader& reader, const std::string& key, std::string& out, const Names& names) {
  const std::string before = out;
  if (!reader.read_choice(key, out, names.known)) return false;
  for (const std::string& name : names.supported)
    if (name == out) return true;
  std::string supported;
  for (const std::string& name : names.supported) supported += (supported.empty() ? "" : ", ") + name;
  return reader.judge(key, [&] {
    core::raise_usage("config", 10,
                      {.what = "this build has no " + reader.prefix() + key + " " + std::exchange(out, before),
                       .expected = supported,
                       .where = reader.section().find(key)->place.text()});
  });
}

}  // namespace rlalgo::config::detail
