// Reads the keys of one section into typed fields, and finds the keys that nobody asked for.
//
// A null value means "not set": the field keeps its default. Numbers may be written as texts ("1e-5"), whole floats are
// integers, and on the command line every scalar may serve as a text and one scalar as a list of one. After all keys
// are read, finish() refuses every key that was neither read nor recognised.
//
// Nothing is raised: what is refused is kept in the Findings (config/refusals.hpp), the field keeps its default, and reading goes on.
//
// Errors (usage), kept: [rlalgo.config.4] unknown key, with file:line and the nearest match; [rlalgo.config.5] wrong type;
// [rlalgo.config.6] not one of the allowed words, or a number that
// its type does not hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rlalgo/config/node.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::config {

// What reading a configuration brings to light beside the values.
struct Findings {
  std::vector<std::string> warnings;
  Refusals refusals = Refusals();
  bool allow_unsupported = false;      // what is not here and changes no number is a warning, no refusal
  std::map<std::string, Place> given;  // every key that was set, by its full name ("trl.beta")

  // The fields that keys set, by key: every field inside `fields` that was read, set or not. Their values are asked for
  // when all keys are read, while that object lives.
  std::span<const std::byte> fields = {};
  std::map<std::string, std::function<data::Json()>> values;
  template <class T>
  void record(const std::string& key, const T& field);
};

namespace detail {

// A value as JSON; null where it is not set.
template <class T>
data::Json as_json(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return static_cast<int>(value);
  else
    return value;
}
template <class T>
data::Json as_json(const std::optional<T>& value) {
  return value ? as_json(*value) : data::Json();
}

[[noreturn]] inline void raise_type(const std::string& key, const Node& node, const std::string& expected) {
  std::string remedy;
  if (node.kind == Kind::mapping && expected.starts_with("a list")) remedy = "put a dash before each item";
  core::raise_usage("config", 5,
                    {.what = "the value of " + key + " has the wrong type",
                     .found = describe(node),
                     .expected = expected,
                     .where = node.place.text(),
                     .remedy = remedy});
}

[[noreturn]] inline void raise_range(const std::string& key, const Node& node, const std::string& expected) {
  core::raise_usage("config", 6,
                    {.what = "the value of " + key + " is out of range",
                     .found = describe(node),
                     .expected = expected,
                     .where = node.place.text()});
}

inline bool lower_equal(const std::string& text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(text[i])) != word[i]) return false;
  return true;
}

inline std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

[[noreturn]] inline void raise_word(const std::string& key, const std::string& word, const std::string& found,
                                    const Place& place, const std::vector<std::string>& allowed) {
  const std::string nearest = core::nearest_name(word, allowed);
  core::raise_usage("config", 6,
                    {.what = "the value of " + key + " is not known",
                     .found = found,
                     .expected = "one of " + joined(allowed),
                     .where = place.text(),
                     .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
}

// A text that must be one of `allowed`; YAML's bare no/off/false counts as "no" where that is allowed.
[[nodiscard]] inline std::string chosen(const std::string& key, const Node& node,
                                        const std::vector<std::string>& allowed) {
  if (!node.scalar()) raise_type(key, node, "one of " + joined(allowed));
  const std::string word = node.kind == Kind::boolean && !node.boolean ? "no" : node.text;
  if (std::find(allowed.begin(), allowed.end(), word) == allowed.end())
    raise_word(key, word, describe(node), node.place, allowed);
  return word;
}

inline void convert(const Node& node, const std::string& key, bool& out) {
  if (node.kind == Kind::boolean) {
    out = node.boolean;
    return;
  }
  for (const std::string_view yes : {"true", "yes", "on", "1", "t", "y"})
    if (node.scalar() && lower_equal(node.text, yes)) return void(out = true);
  for (const std::string_view no : {"false", "no", "off", "0", "f", "n"})
    if (node.scalar() && lower_equal(node.text, no)) return void(out = false);
  raise_type(key, node, "true or false");
}

inline void convert(const Node& node, const std::string& key, double& out) {
  std::optional<double> value;
  if (node.kind == Kind::integer || node.kind == Kind::number) value = node.number;
  if (node.kind == Kind::string) {
    value = parse_number(node.text);
    if (const auto integer = parse_integer(node.text); !value && integer) value = static_cast<double>(*integer);
  }
  if (!value || std::isnan(*value)) raise_type(key, node, "a number");
  // Tensors are of float32 at most: what it does not hold would fail somewhere inside.
  constexpr double most = std::numeric_limits<float>::max();
  if (std::isfinite(*value) && std::abs(*value) > most)
    raise_range(key, node, "a number from -3.4e38 to 3.4e38, the range of float32");
  out = *value;
}

inline void convert(const Node& node, const std::string& key, std::int64_t& out) {
  std::optional<std::int64_t> value;
  if (node.kind == Kind::integer) value = node.integer;
  if (node.kind == Kind::string) value = parse_integer(node.text);
  const std::optional<double> real = node.kind == Kind::number   ? std::optional<double>(node.number)
                                     : node.kind == Kind::string ? parse_number(node.text)
                                                                 : std::nullopt;
  const bool whole = real && std::floor(*real) == *real;
  if (!value && whole && std::abs(*real) < 9e15) value = static_cast<std::int64_t>(*real);
  if (!value && whole) raise_range(key, node, "a whole number that 64 bits hold");
  if (!value) raise_type(key, node, "an integer");
  out = *value;
}

inline void convert(const Node& node, const std::string& key, std::string& out) {
  const bool usable = node.kind == Kind::string || (node.place.command_line() && node.scalar());
  if (!usable) raise_type(key, node, node.scalar() ? "a text (put it in quotes)" : "a text");
  out = node.text;
}

inline void convert(const Node& node, const std::string&, data::Json& out) { out = to_json(node); }

template <class T>
void convert(const Node& node, const std::string& key, std::vector<T>& out) {
  out.clear();
  if (node.kind != Kind::sequence) {
    if (!node.scalar() || !node.place.command_line()) raise_type(key, node, "a list, one item per line after a dash");
    out.emplace_back();
    convert(node, key, out.back());
    return;
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    T item{};
    convert(node.items[i], key + "[" + std::to_string(i) + "]", item);
    out.push_back(std::move(item));
  }
}

template <class T>
void convert(const Node& node, const std::string& key, std::optional<T>& out) {
  T value{};
  convert(node, key, value);
  out = std::move(value);
}

}  // namespace detail

// Fields elsewhere (a local variable of a reader) say nothing about the object that is read.
template <class T>
void Findings::record(const std::string& key, const T& field) {
  const auto* at = reinterpret_cast<const std::byte*>(&field);
  const std::less<const std::byte*> before;
  if (fields.empty() || before(at, fields.data()) || !before(at, fields.data() + fields.size())) return;
  values[key] = [&field] { return detail::as_json(field); };
}

// What a key that is none here is called here, where another program has it (config/names_elsewhere.hpp).
struct Answer {
  std::string key;     // "": nothing says the same
  std::string remedy;  // as the end of an error
};
using Answers = std::function<std::optional<Answer>(const std::string& key)>;

class Reader {
 public:
  // `section` should be a mapping; `prefix` is "" or ends in a dot.
  Reader(const Node& section, std::string prefix, Findings& findings)
      : section_(section.kind == Kind::mapping ? section : nothing()), prefix_(std::move(prefix)), findings_(findings) {
    if (section.kind == Kind::mapping) return;
    findings_.refusals.judge_own(
        [&] { detail::raise_type(prefix_.substr(0, prefix_.size() - 1), section, "a section of key: value lines"); });
    findings_.refusals.distrust(prefix_);
  }

  // The value of `key`, or null when it is absent or null. The key counts as known from here on.
  const Node* take(const std::string& key) {
    known_.push_back(key);
    seen_.insert(key);
    const Node* node = section_.find(key);
    if (node == nullptr || node->kind == Kind::null) return nullptr;
    findings_.given[prefix_ + key] = node->place;
    return node;
  }

  // Sets `out` when the key is given. True when it was, and could be.
  template <class T>
  bool read(const std::string& key, T& out) {
    record(key, out);
    const Node* node = take(key);
    if (node == nullptr) return false;
    return judge(key, [&] {
      T value{};
      detail::convert(*node, prefix_ + key, value);
      out = std::move(value);
    });
  }

  // A text that must be one of `allowed`; YAML's bare no/off/false counts as "no" where that is allowed.
  template <class Text>
  bool read_choice(const std::string& key, Text& out, const std::vector<std::string>& allowed) {
    record(key, out);
    const Node* node = take(key);
    return node != nullptr && judge(key, [&] { out = detail::chosen(prefix_ + key, *node, allowed); });
  }

  // Runs a judgement of the value of `key`; false when it was refused: then nothing that hangs on the value is refused.
  template <class F>
  bool judge(const std::string& key, F&& judgement) {
    if (findings_.refusals.judge_own(judgement)) return true;
    findings_.refusals.distrust(prefix_ + key);
    return false;
  }

  // Keeps a refusal of a key by itself, whose value was read; or of a relation between keys.
  void refuse_own(int number, const core::ErrorText& text) { findings_.refusals.add_own(number, text); }
  void refuse(int number, const core::ErrorText& text) { findings_.refusals.add(number, text); }

  // Says that `key`, which is read by other means, sets `field`.
  template <class T>
  void record(const std::string& key, const T& field) {
    findings_.record(prefix_ + key, field);
  }

  // Makes `key` known without reading it.
  void recognise(const std::string& key) {
    known_.push_back(key);
    seen_.insert(key);
  }

  // Whether `key` is written in this section with a value.
  [[nodiscard]] bool given(const std::string& key) const {
    const Node* node = section_.find(key);
    return node != nullptr && node->kind != Kind::null;
  }
  // Whether `key` was read or recognised.
  [[nodiscard]] bool knows(const std::string& key) const { return seen_.contains(key); }

  [[nodiscard]] const Node& section() const { return section_; }
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] Findings& findings() { return findings_; }

  // Refuses the keys that were not taken. `elsewhere` are full names of keys of other sections, to suggest from, `answers` those of other
  // programs. What was meant is not judged: it has not the value that the file gives it.
  // True: there were none.
  bool finish(const std::vector<std::string>& elsewhere = {}, const Answers& answers = {}) const {
    std::vector<std::string> meant;
    std::vector<core::ErrorText> unknown;
    for (const Member& member : section_.members) {
      if (seen_.contains(member.key)) continue;
      std::string remedy;
      if (const std::optional<Answer> answer = answers ? answers(member.key) : std::nullopt; answer) {
        remedy = answer->remedy;
        meant.push_back(answer->key);
      } else {
        const std::string nearest = core::nearest_name(member.key, known_);
        if (!nearest.empty()) remedy = "did you mean " + prefix_ + nearest + "?";
        if (!nearest.empty()) meant.push_back(prefix_ + nearest);
        for (const std::string& name : elsewhere)
          if (name.substr(name.rfind('.') + 1) == member.key) {
            remedy = "this key is written " + name;
            meant.push_back(name);
          }
      }
      const Place& place = member.value.place.command_line() ? member.value.place : member.place;
      const std::string all = remedy.empty() && known_.size() <= 8 ? detail::joined(known_) : "";
      unknown.push_back(
          {.what = "unknown key " + prefix_ + member.key, .expected = all, .where = place.text(), .remedy = remedy});
    }
    std::erase(meant, "");
    for (const std::string& key : meant) findings_.refusals.forget(key);
    for (const core::ErrorText& text : unknown) findings_.refusals.add_own(4, text);
    for (const std::string& key : meant) findings_.refusals.distrust(key);
    return unknown.empty();
  }

  [[nodiscard]] const std::vector<std::string>& known() const { return known_; }

 private:
  static const Node& nothing() {
    static const Node none = [] {
      Node node;
      node.kind = Kind::mapping;
      return node;
    }();
    return none;
  }

  const Node& section_;
  std::string prefix_;
  Findings& findings_;
  std::vector<std::string> known_;
  std::set<std::string> seen_;
};

}  // namespace rlalgo::config
