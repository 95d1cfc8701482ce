// A Python program that answers questions: JSON both ways, each exchange under a deadline, and what can go wrong with
// it.
//
// Bytes that are no UTF-8 (a character cut in two) arrive as U+FFFD. After a late or unreadable answer the process and
// all it started are killed.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/detail/line_process.hpp>
#include <rlalgo/remote/detail/python_host.hpp>

namespace rlalgo::remote::detail {

// A number as our programs write it: null is NaN, "inf" and "-inf" are what JSON cannot say.
[[nodiscard]] inline double number_of(const nlohmann::ordered_json& value) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_string()) return value.get<double>();
  const double infinite = std::numeric_limits<double>::infinity();
  return value.get_ref<const std::string&>() == "-inf" ? -infinite : infinite;
}

class PythonProcess {
 public:
  using Json = nlohmann::ordered_json;
  // refused: the program said so, `answer` holds kind, message, traceback and where.
  enum class Trouble { late, ended, unreadable, refused };
  struct Failure {
    Trouble trouble;
    std::string found;  // for a person
    Json answer = nullptr;
    double seconds = 0.0;  // how long was waited
  };

  // Starts `python` with a body of python_host.hpp. 0 or an errno.
  int start(const std::string& python, const std::string& body) {
    const std::vector<std::string> command = python_command(python, body);
    program_ = command.front();
    return process_.start(command);
  }
  void set_stop_seconds(double seconds) { process_.set_stop_seconds(seconds); }
  [[nodiscard]] const std::string& program() const noexcept { return program_; }

  // The answer, an object.
  [[nodiscard]] std::variant<Json, Failure> ask(const Json& question, double seconds) {
    const os::Stopwatch watch;
    const os::Deadline deadline(seconds);
    const std::string line = question.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string text;
    const LineProcess::Outcome outcome =
        process_.running() ? process_.exchange(line, text, deadline) : LineProcess::Outcome::gone;
    if (outcome == LineProcess::Outcome::late) {
      process_.stop(0.0);
      return Failure{.trouble = Trouble::late, .found = {}, .seconds = watch.seconds()};
    }
    if (outcome == LineProcess::Outcome::gone)
      return Failure{.trouble = Trouble::ended, .found = process_.stop(dying_seconds), .seconds = watch.seconds()};
    if (outcome == LineProcess::Outcome::too_long) {
      process_.stop(0.0);
      return too_much("more than " + std::to_string(LineProcess::longest_answer) + " bytes");
    }
    auto [answer, problem] = core::read_json<Json>(text);
    if (problem.beyond_limit) return too_much(problem.text);
    if (!answer.is_object()) return unreadable(text);
    if (!answer.contains("error")) return std::move(answer);
    const std::string trace = answer.value("traceback", "");
    std::string found = answer.value("message", "") + (trace.empty() ? "" : "\n" + trace);
    return Failure{.trouble = Trouble::refused, .found = std::move(found), .answer = std::move(answer)};
  }

  // Ends it, whatever it does.
  void end() { process_.stop(0.0); }

  // For an answer that is an object and yet not what was agreed.
  [[nodiscard]] Failure unreadable(const std::string& text) {
    process_.stop(0.0);
    return {.trouble = Trouble::unreadable, .found = text.substr(0, 200)};
  }

 private:
  // An answer that keeps to the protocol and is more than is read.
  static Failure too_much(const std::string& found) {
    const std::string text = "an answer that is beyond what is read: " + found;
    return {.trouble = Trouble::refused, .found = text, .answer = {{"kind", "value"}, {"message", text}}};
  }
  static constexpr double dying_seconds = 5.0;  // what a process that closed its channel is given to end by itself
  std::string program_;
  LineProcess process_;
};

}  // namespace rlalgo::remote::detail
