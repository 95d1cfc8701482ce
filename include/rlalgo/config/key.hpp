// A key of a configuration as one row: its name, the member that it sets, the values that it takes, one sentence, when it is read,
// which methods it belongs to, and whether a resumed run may change it.
//
//   key("trl.epsilon", t.epsilon, "how far the ratio may move before it is clipped").within(above(0).to(1)).of_loss("grpo dapo")
//
// Rows stand beside the struct whose members they set (config/*_keys.hpp), bound to one object of it. From them come the reader
// (config/detail/read_rows.hpp), the range check (config/validate.hpp), "has no effect", "does not go with rl", the rules of a resume
// (config/resume_rules.hpp), the nearest name, `rlalgo keys` and the tables of docs/configuration.md. The member's value before
// anything is read is the default. A key whose value is no plain number, word, text or list has a reader of its own: by().
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/supported.hpp>

namespace rlalgo::config {

// A number as it would be typed.
[[nodiscard]] inline std::string spelled(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end);
}

// The finite numbers from `low` to `high`. Made as above(0).to(1), at_least(0).below(1), count(1).
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;  // `low` itself is outside; likewise `high`
  bool open_high = false;
  std::string_view unit = {};  // seconds
  std::string_view note = {};  // what an end means

  [[nodiscard]] constexpr Range to(double most) const { return with(most, false); }
  [[nodiscard]] constexpr Range below(double bound) const { return with(bound, true); }
  [[nodiscard]] constexpr Range in(std::string_view what) const {
    Range out = *this;
    out.unit = what;
    return out;
  }
  [[nodiscard]] constexpr Range meaning(std::string_view what) const {
    Range out = *this;
    out.note = what;
    return out;
  }

  [[nodiscard]] bool holds(double value) const {
    if (!std::isfinite(value)) return false;
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
  }
  // Of counts, whose upper end is that of all counts, the end that `value` is beyond.
  [[nodiscard]] std::string text(double value = 0) const {
    std::string out =
        high == most && value > most ? "at most " + std::to_string(static_cast<std::int64_t>(most)) : ends();
    if (!unit.empty()) out += " " + std::string(unit);
    if (!note.empty()) out += " (" + std::string(note) + ")";
    return out;
  }

  // Counts stay below 10^9, so that products of two of them cannot overflow.
  static constexpr double most = 1e9;

 private:
  [[nodiscard]] constexpr Range with(double bound, bool open) const {
    Range out = *this;
    out.high = bound;
    out.open_high = open;
    return out;
  }
  [[nodiscard]] std::string ends() const {
    if (std::isinf(low)) return std::isinf(high) ? "a finite number" : "at most " + spelled(high);
    if (std::isinf(high) || high == most) return open_low ? "more than " + spelled(low) : spelled(low) + " or more";
    if (open_low) return "more than " + spelled(low) + (open_high ? ", less than " : ", at most ") + spelled(high);
    return "from " + spelled(low) + (open_high ? " up to, not including, " : " to ") + spelled(high);
  }
};
inline constexpr Range any_number{};
[[nodiscard]] constexpr Range at_least(double low) { return {.low = low}; }
[[nodiscard]] constexpr Range above(double low) { return {.low = low, .open_low = true}; }
[[nodiscard]] constexpr Range count(double least) { return {.low = least, .high = Range::most}; }
inline constexpr Range fraction = at_least(0).to(1);
inline constexpr Range positive = above(0);
inline constexpr Range seconds = above(0).in("seconds");
inline constexpr Range port = at_least(1).to(65535);

// Whether a key is read where the configuration stands: empty, or the reason why it has no effect.
using Gate = std::function<std::string_view()>;
template <std::predicate F>
[[nodiscard]] Gate where(F holds, std::string_view otherwise) {
  return [=] { return holds() ? std::string_view() : otherwise; };
}

// Why a resumed run may differ in a key; a key without a reason changes what is computed.
struct Resume {
  std::string_view why = {};
  bool evaluates = false;  // when and on what is evaluated: compared where the learning rate follows evaluations
  bool stretches = false;  // another end of the run: a difference is named
};
namespace resume {
inline constexpr Resume place{"a place; what lies there is compared by content where it is read again"};
inline constexpr Resume rows{"its rows are compared"};
inline constexpr Resume when{"when something is written or evaluated, not what is computed"};
inline constexpr Resume evaluation{"when and on what is evaluated", true};
inline constexpr Resume output{"how the model is saved for others; checkpoints are exact"};
inline constexpr Resume wait{"how long something is waited for"};
inline constexpr Resume ranks{"the same numbers to rounding, on so many ranks"};
inline constexpr Resume how{"it says how to resume"};
inline constexpr Resume layout{"where weights and states lie, not what is computed"};
inline constexpr Resume same{"the same numbers on another way"};
inline constexpr Resume sums{"the same numbers to rounding; a difference is named", false, true};
inline constexpr Resume longer{"a run is made longer or shorter; its schedule follows", false, true};
}  // namespace resume

// A member of any type that the reader converts to.
struct Target {
  void* at = nullptr;
  void (*read)(void*, const Node&, const std::string& key) = nullptr;
  data::Json (*json)(const void*) = nullptr;
  void (*record)(const void*, const std::string& key, Findings&) = nullptr;
  void (*each_text)(void*, const std::function<void(std::string&)>&) = nullptr;
  std::string_view form = {};  // what a value is

  Target() = default;
  template <class T>
  explicit Target(T& member);
};

namespace detail {

template <class T>
struct FormOf {
  static constexpr std::string_view form = std::same_as<T, std::int64_t> ? "whole number" : "";
};
template <>
struct FormOf<bool> {
  static constexpr std::string_view form = "true, false";
};
template <>
struct FormOf<double> {
  static constexpr std::string_view form = "number";
};
template <>
struct FormOf<std::string> {
  static constexpr std::string_view form = "text";
};
template <>
struct FormOf<data::Json> {
  static constexpr std::string_view form = "section";
};
template <class T>
struct FormOf<std::optional<T>> : FormOf<T> {};
template <>
struct FormOf<std::vector<std::string>> {
  static constexpr std::string_view form = "list of texts";
};
template <>
struct FormOf<std::vector<double>> {
  static constexpr std::string_view form = "list of numbers";
};
template <>
struct FormOf<std::vector<std::int64_t>> {
  static constexpr std::string_view form = "list of whole numbers";
};

}  // namespace detail

template <class T>
Target::Target(T& member) : at(&member), form(detail::FormOf<T>::form) {
  json = [](const void* from) { return detail::as_json(*static_cast<const T*>(from)); };
  record = [](const void* from, const std::string& key, Findings& findings) {
    findings.record(key, *static_cast<const T*>(from));
  };
  each_text = [](void* to, const std::function<void(std::string&)>& visit) {
    [[maybe_unused]] T& value = *static_cast<T*>(to);
    if constexpr (std::same_as<T, std::string>)
      visit(value);
    else if constexpr (std::same_as<T, std::optional<std::string>>)
      value ? visit(*value) : void();
    else if constexpr (std::same_as<T, std::vector<std::string>>)
      for (std::string& text : value) visit(text);
  };
  if constexpr (!detail::FormOf<T>::form.empty())
    read = [](void* to, const Node& node, const std::string& key) {
      T value{};
      detail::convert(node, key, value);
      *static_cast<T*>(to) = std::move(value);
    };
}

struct Key {
  std::string_view name;  // full, as in YAML
  std::string_view says;  // one sentence, in Markdown
  Target target = {};
  Range range = {};
  bool ranged = false;
  bool or_zero = false;  // 0 is the same as nothing, whatever the range, as of axolotl's counts and distances
  Names words = {};
  std::vector<std::pair<std::string_view, std::string_view>> synonyms = {};  // a word or flag, and what it stands for
  std::function<void(const Node&)> reader = {};
  std::string_view form = {};   // what a value is, where the member's type does not say it
  std::string_view lines = {};  // the value is a section: of which lines
  std::string_view shown = {};  // the default in words
  Gate gate = {};               // it is read
  Gate in_use = {};             // it is read, and what it says has an effect
  bool if_written = false;      // no setting of a run that does not write it: runs without it are what they were
  bool path = false;
  std::string_view stands_for = {};  // another spelling of that key
  bool renamed = false;              // an old one, which a warning says
  std::string_view recipes =
      {};                        // the values of `rl` that it belongs to, others of their kind refuse it; empty: to all
  std::string_view losses = {};  // the values of trl.loss_type that read it; empty: all
  std::string_view estimators = {};  // the same of trl.advantage_estimator
  std::string_view modes = {};       // the same of ebft.mode
  Resume resume = {};

  Key&& within(Range r) && { return range = r, ranged = true, std::move(*this); }
  Key&& or_nothing() && { return or_zero = true, std::move(*this); }
  Key&& one_of(std::vector<std::string> names) && {
    return words.known = names, words.supported = std::move(names), std::move(*this);
  }
  Key&& one_of(Names names) && { return words = std::move(names), std::move(*this); }
  Key&& by(std::string_view what, std::function<void(const Node&)> f) && {
    return form = what, reader = std::move(f), std::move(*this);
  }
  Key&& as_section(std::string_view of) && { return form = "section", lines = of, std::move(*this); }
  Key&& meaning(std::string_view word, std::string_view stands) && {
    return synonyms.emplace_back(word, stands), std::move(*this);
  }
  Key&& shows(std::string_view text) && { return shown = text, std::move(*this); }
  Key&& when(Gate g) && { return gate = std::move(g), std::move(*this); }
  Key&& without_effect(std::string_view why) && {
    return gate = [why] { return why; }, std::move(*this);
  }
  Key&& used(Gate g) && { return in_use = std::move(g), std::move(*this); }
  Key&& only_if_written() && { return if_written = true, std::move(*this); }
  Key&& a_path() && { return path = true, std::move(*this); }
  Key&& same_as(std::string_view key) && { return stands_for = key, std::move(*this); }
  Key&& old_name_of(std::string_view key) && { return renamed = true, std::move(*this).same_as(key); }
  Key&& of_recipe(std::string_view names) && { return recipes = names, std::move(*this); }
  Key&& of_loss(std::string_view names) && { return losses = names, std::move(*this); }
  Key&& of_estimator(std::string_view names) && { return estimators = names, std::move(*this); }
  Key&& of_mode(std::string_view names) && { return modes = names, std::move(*this); }
  Key&& free(Resume why) && { return resume = why, std::move(*this); }

  // Empty where it is read.
  [[nodiscard]] std::string_view idle_because() const { return gate ? gate() : std::string_view(); }
};
using Keys = std::vector<Key>;

template <class T>
[[nodiscard]] Key key(std::string_view name, T& member, std::string_view says) {
  return {.name = name, .says = says, .target = Target(member)};
}
// A key that its reader alone acts on.
[[nodiscard]] inline Key key(std::string_view name, std::string_view says) { return {.name = name, .says = says}; }

// "grpo gdpo" as "grpo, gdpo".
[[nodiscard]] inline std::string listed_words(std::string_view list) {
  std::string out;
  for (const char c : list) out += c == ' ' ? ", " : std::string(1, c);
  return out;
}

// Whether `word` is among those of a list such as "grpo gdpo".
[[nodiscard]] inline bool among(std::string_view word, std::string_view list) {
  for (std::size_t at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

}  // namespace rlalgo::config
