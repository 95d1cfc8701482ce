// Numbered errors: every failure a user can cause carries a room, a number, what was found and what to do.
//
//   [rlalgo.<room>.<number>] what: found …, expected …, at …; remedy
//
// What an error quotes may come from anybody: control characters are shown as escapes (line ends stay in `found` and
// `where`, which hold tracebacks), and a part longer than `longest_part` bytes loses its middle.
//
// Every (room, number) pair raised in the library has one entry in docs/errors.md; scripts/check_architecture.py
// proves that on each CI run.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/printable.hpp>

namespace rlalgo::core {

// The parts of an error text. Empty parts are left out.
struct ErrorText {
  std::string what = {};      // one clause: what is wrong
  std::string found = {};     // the offending value
  std::string expected = {};  // what would have been accepted
  std::string where = {};     // file:line, key, tensor name, dataset row …
  std::string remedy = {};    // what the user can do about it
};

class Error : public std::runtime_error {
 public:
  Error(std::string room, int number, const ErrorText& text)
      : std::runtime_error(render(room, number, text)), room_(std::move(room)), number_(number) {}

  [[nodiscard]] const std::string& room() const noexcept { return room_; }
  [[nodiscard]] int number() const noexcept { return number_; }
  // The process exit status this error asks for: 1 for a failed run, 2 for wrong usage.
  [[nodiscard]] virtual int exit_code() const noexcept { return 1; }
  // False: something was given up because a stop was asked for (os/interruption.hpp).
  [[nodiscard]] virtual bool failure() const noexcept { return true; }

  static constexpr std::size_t longest_part = 8192;  // bytes

  static std::string render(const std::string& room, int number, const ErrorText& text) {
    const auto shown = [](const std::string& part, std::string_view keep) {
      return printable(shortened(part, longest_part), keep);
    };
    constexpr std::string_view one_line = "\t", lines = "\n\t";
    std::string out = "[rlalgo." + room + "." + std::to_string(number) + "] " + shown(text.what, one_line);
    std::string facts;
    const auto add = [&](const char* label, const std::string& value, std::string_view keep) {
      if (value.empty()) return;
      facts += facts.empty() ? "" : ", ";
      facts += label + shown(value, keep);
    };
    add("found ", text.found, lines);
    add("expected ", text.expected, one_line);
    add("at ", text.where, lines);
    if (!facts.empty()) out += ": " + facts;
    if (!text.remedy.empty()) out += "; " + shown(text.remedy, one_line);
    return out;
  }

 private:
  std::string room_;
  int number_;
};

// Wrong command line or configuration: exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] int exit_code() const noexcept override { return 2; }
};

[[noreturn]] inline void raise(const std::string& room, int number, const ErrorText& text) {
  throw Error(room, number, text);
}

[[noreturn]] inline void raise_usage(const std::string& room, int number, const ErrorText& text) {
  throw UsageError(room, number, text);
}

}  // namespace rlalgo::core
