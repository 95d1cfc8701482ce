// What is refused in a configuration: everything is judged, and one error at the end says all of it, by line.
//
//   judge_own(f)   runs one judgement of a key by itself; what it refuses is kept, and the next goes on
//   judge(f)       the same of a relation between keys
//   judge_found(w, f)  the same of what the key at place w names: errors of any room
//   distrust(key)  the value of `key` was not taken and the field has its default: a relation that is refused from here on and names
//                  that key would follow from that, and is not said. "trl." is a section that could not be read
//   raise()        nothing where nothing was refused; a single refusal as it is; several as one error, each with its number, place
//                  and remedy, sorted by the lines of the file, then what has no line (missing keys, the command line)
//
// Errors (usage): [rlalgo.config.45] several refusals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/os/interruption.hpp>

namespace rlalgo::config {

// Several refusals as one error: a line for each.
class SeveralRefusals : public core::UsageError {
 public:
  explicit SeveralRefusals(const std::vector<std::string>& texts)
      : core::UsageError("config", 45, {.what = std::to_string(texts.size()) + " problems, by line"}),
        lines_(core::UsageError::what()) {
    for (std::size_t i = 0; i < texts.size() && i < most; ++i) lines_ += "\n  " + texts[i];
    if (texts.size() > most) lines_ += "\n  and " + std::to_string(texts.size() - most) + " more";
  }
  [[nodiscard]] const char* what() const noexcept override { return lines_.c_str(); }

  static constexpr std::size_t most = 100;

 private:
  std::string lines_;
};

class Refusals {
 public:
  explicit Refusals(std::string file = {}) : file_(std::move(file)) {}

  // A refusal of a relation: what must hold between keys.
  void add(int number, const core::ErrorText& text) { add(core::UsageError("config", number, text)); }
  template <class F>
  bool judge(F&& judgement) {
    return attempt(judgement, [&](const core::UsageError& error) { add(error); });
  }

  // A refusal of one key by itself: it follows from nothing.
  void add_own(int number, const core::ErrorText& text) { keep(core::UsageError("config", number, text), true); }
  template <class F>
  bool judge_own(F&& judgement) {
    return attempt(judgement, [&](const core::UsageError& error) { keep(error, true); });
  }

  // What is found elsewhere (a file, a program) by what a key names: errors of any room. `where`: the key's place.
  template <class F>
  bool judge_found(const std::string& where, F&& judgement) {
    try {
      core::located(where, judgement);
      return true;
    } catch (const os::Interrupted&) {
      throw;
    } catch (const core::Error& error) {
      keep(error.what(), std::current_exception(), true);
      return false;
    }
  }

  void distrust(const std::string& key) { distrusted_.insert(key); }
  // Gives up what was refused and names `key`: as it turns out, the file means it by another name.
  void forget(const std::string& key) {
    std::erase_if(kept_, [&](const Kept& kept) { return !kept.own && names(kept.text, key); });
  }
  [[nodiscard]] bool distrusts(const std::string& key) const { return distrusted_.contains(key); }
  [[nodiscard]] bool empty() const { return kept_.empty(); }

  void raise() const {
    if (kept_.empty()) return;
    if (kept_.size() == 1) std::rethrow_exception(kept_.front().error);
    std::vector<const Kept*> order;
    for (const Kept& kept : kept_) order.push_back(&kept);
    std::stable_sort(order.begin(), order.end(), [](const Kept* a, const Kept* b) { return a->line < b->line; });
    std::vector<std::string> texts;
    for (const Kept* kept : order) texts.push_back(kept->text);
    throw SeveralRefusals(texts);
  }

 private:
  struct Kept {
    long line;
    std::string text;
    std::exception_ptr error;
    bool own;  // of one key by itself
  };

  template <class F, class Keep>
  static bool attempt(F& judgement, const Keep& keep) {
    try {
      judgement();
      return true;
    } catch (const core::UsageError& error) {
      keep(error);
      return false;
    }
  }
  void add(const core::UsageError& error) {
    if (!follows(error.what())) keep(error, false);
  }
  void keep(const core::UsageError& error, bool own) { keep(error.what(), std::make_exception_ptr(error), own); }
  void keep(const std::string& text, std::exception_ptr error, bool own) {
    for (const Kept& kept : kept_)
      if (kept.text == text) return;
    kept_.push_back({line_in(text), text, std::move(error), own});
  }

  // The line of the file that an error text names first.
  [[nodiscard]] long line_in(const std::string& text) const {
    const std::string before = file_ + ":";
    const std::size_t at = file_.empty() ? std::string::npos : text.find(before);
    if (at == std::string::npos) return std::numeric_limits<long>::max();
    long line = 0;
    std::size_t i = at + before.size();
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && line < 100'000'000; ++i)
      line = 10 * line + (text[i] - '0');
    return i == at + before.size() ? std::numeric_limits<long>::max() : line;
  }

  static bool in_a_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  // Whether `name` stands in `text` by itself; a section (it ends in a dot) with anything behind it.
  static bool names(std::string_view text, std::string_view name) {
    for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
      const bool begins = at == 0 || (!in_a_name(text[at - 1]) && text[at - 1] != '.');
      const std::size_t end = at + name.size();
      if (begins && (name.ends_with('.') || end == text.size() || !in_a_name(text[end]))) return true;
    }
    return false;
  }
  [[nodiscard]] bool follows(const std::string& text) const {
    return std::any_of(distrusted_.begin(), distrusted_.end(), [&](const std::string& key) {
      if (names(text, key)) return true;
      // Errors also name a key of a section without it, where the name is no common word.
      const std::string own = key.substr(key.rfind('.') + 1);
      return own != key && own.find('_') != std::string::npos && names(text, own);
    });
  }

  std::string file_;
  std::vector<Kept> kept_;
  std::set<std::string> distrusted_;
};

}  // namespace rlalgo::config
