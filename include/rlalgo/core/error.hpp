// Numbered errors: every failure a user can cause carries a room, a number, what was found and what to do.
//
//   [rlalgo.<room>.<number>] what: found …, expected …, at …; remedy
//
// Every (room, number) pair raised in the library has one entry in docs/errors.md; scripts/check_architecture.py
// proves that on each CI run.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

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

  static std::string render(const std::string& room, int number, const ErrorText& text) {
    std::string out = "[rlalgo." + room + "." + std::to_string(number) + "] " + text.what;
    std::string facts;
    const auto add = [&](const char* label, const std::string& value) {
      if (value.empty()) return;
      facts += facts.empty() ? "" : ", ";
      facts += label + value;
    };
    add("found ", text.found);
    add("expected ", text.expected);
    add("at ", text.where);
    if (!facts.empty()) out += ": " + facts;
    if (!text.remedy.empty()) out += "; " + text.remedy;
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
