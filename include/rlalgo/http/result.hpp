// How a call ended: with a response of any status, or without one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include <rlalgo/http/message.hpp>

namespace rlalgo::http {

struct Failure {
  enum class Kind {
    unreachable,  // no address for the name, or no connection
    broken,       // the connection ended before the answer did
    timeout,      // the deadline of the call passed
    cancelled,    // the caller's stop token
    too_large,    // the answer is beyond a limit
    malformed,    // it is no HTTP
  };
  Kind kind = Kind::broken;
  std::string waited_for = {};  // "a connection", "the rest of the answer (12 bytes so far)" …
  std::string reason = {};      // what the system or the parser says

  [[nodiscard]] std::string text() const { return reason + ", waiting for " + waited_for; }
};

class Result {
 public:
  Result(Response response) : outcome_(std::move(response)) {}
  Result(Failure failure) : outcome_(std::move(failure)) {}

  [[nodiscard]] bool answered() const noexcept { return std::holds_alternative<Response>(outcome_); }
  [[nodiscard]] bool ok() const noexcept { return answered() && response().ok(); }
  [[nodiscard]] const Response& response() const { return std::get<Response>(outcome_); }
  [[nodiscard]] Response& response() { return std::get<Response>(outcome_); }
  [[nodiscard]] const Failure& failure() const { return std::get<Failure>(outcome_); }
  // "HTTP 503", or what went wrong.
  [[nodiscard]] std::string text() const {
    return answered() ? "HTTP " + std::to_string(response().status) : failure().text();
  }

  std::int64_t attempts = 1;
  double seconds = 0.0;  // of all attempts and the waits between them

 private:
  std::variant<Response, Failure> outcome_;
};

}  // namespace rlalgo::http
