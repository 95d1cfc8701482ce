// An HTTP/1.1 client of one server: one deadline per call, limits, retries with a line of the log each, cancellation.
//
// A call ends within its seconds whatever the server does: looking up the name, connecting, sending, the waits between
// attempts and every byte of the answer are covered. How it ended is a value. Redirects are not followed, bodies are
// not decompressed, there is no TLS. Connections are kept open between calls. Calls may come from several threads.
//
// Errors:
//   [rlalgo.http.4] the address is no http URL (exit 2)
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/detail/address.hpp>
#include <rlalgo/http/detail/attempt.hpp>
#include <rlalgo/http/message.hpp>
#include <rlalgo/http/result.hpp>
#include <rlalgo/http/retry.hpp>
#include <rlalgo/os/clock.hpp>

namespace rlalgo::http {

struct ClientConfig {
  std::string base_url{};                            // http://host:port, a path may follow
  double connect_seconds = 10.0;                     // one attempt to connect to one address
  double call_seconds = 600.0;                       // one call: all attempts and waits, to the last byte of the answer
  std::size_t header_limit = std::size_t{64} << 10;  // bytes
  std::size_t body_limit = std::size_t{256} << 20;   // bytes
  RetryPolicy retries = {};
  Headers headers = {};       // of every request, before its own
  std::stop_token stop = {};  // ends every call within milliseconds when it is asked to
  // Hears of a call that has had no answer for `waiting_seconds`, and for as long again, and so on.
  std::function<void(const std::string&)> waiting = {};
  double waiting_seconds = 60.0;
};

// For the `waiting` of several calls: one line in `seconds` for all of them together.
[[nodiscard]] inline std::function<void(const std::string&)> one_in(double seconds,
                                                                    std::function<void(const std::string&)> tell) {
  struct Last {
    std::mutex mutex;
    std::optional<os::Stopwatch> since;
  };
  return [seconds, tell = std::move(tell), last = std::make_shared<Last>()](const std::string& line) {
    {
      const std::lock_guard lock(last->mutex);
      if (last->since && last->since->seconds() < seconds) return;
      last->since.emplace();
    }
    tell(line);
  };
}

struct CallOptions {
  double seconds = 0.0;       // instead of call_seconds, when above 0
  std::stop_token stop = {};  // instead of the client's, when it is of some source
  // Takes the body of a 2xx response in parts as they arrive; the response's own stays empty and has no limit. A call
  // is not repeated once it was used.
  std::function<void(std::string_view)> on_body = {};
};

class Client {
 public:
  explicit Client(ClientConfig config) : config_(std::move(config)) {
    auto address = detail::parse_address(config_.base_url);
    if (!address)
      core::raise_usage("http", 4,
                        {.what = "the address of a server cannot be used",
                         .found = config_.base_url,
                         .expected = "http://HOST:PORT",
                         .remedy = "https needs a proxy beside this program"});
    address_ = std::move(*address);
  }

  [[nodiscard]] const std::string& base_url() const noexcept { return config_.base_url; }
  [[nodiscard]] const ClientConfig& config() const noexcept { return config_; }

  // The path of the address comes before request.target.
  Result call(Request request, const CallOptions& options = {}) {
    const os::Stopwatch watch;
    const double seconds = options.seconds > 0 ? options.seconds : config_.call_seconds;
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                               std::chrono::duration<double>(std::min(seconds, longest_call_seconds)));
    const std::stop_token& stop = options.stop.stop_possible() ? options.stop : config_.stop;
    const std::string where = request.method + " " + config_.base_url + request.target;
    request.target.insert(0, address_.path);
    request.headers.insert(request.headers.begin(), config_.headers.begin(), config_.headers.end());
    bool delivered = false;
    detail::AttemptTask task{.address = address_,
                             .request = request,
                             .connect_seconds = config_.connect_seconds,
                             .header_limit = config_.header_limit,
                             .body_limit = config_.body_limit,
                             .deadline = deadline,
                             .stop = stop};
    if (options.on_body)
      task.on_body = [&](std::string_view part) {
        delivered = true;
        options.on_body(part);
      };
    if (config_.waiting) {
      task.waiting_seconds = config_.waiting_seconds;
      task.waiting = [&] {
        config_.waiting(where + " has had no answer for " +
                        std::to_string(static_cast<std::int64_t>(watch.seconds() + 0.5)) +
                        " s; it is waited for up to " +
                        std::to_string(static_cast<std::int64_t>(std::min(seconds, longest_call_seconds))) + " s");
      };
    }
    for (std::int64_t attempt = 1;; ++attempt) {
      Result result = detail::Caller<void>::attempt(task, kept_);
      result.attempts = attempt;
      result.seconds = watch.seconds();
      const auto wait = delivered
                            ? std::nullopt
                            : wait_before_retry(config_.retries, result, attempt, std::chrono::system_clock::now());
      const double left = std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
      if (!wait || *wait >= left) return result;
      if (config_.retries.tell)
        config_.retries.tell(
            {where, result.text(), attempt + 1, config_.retries.retries + 1, *wait, result.answered()});
      if (!detail::wait_for(*wait, stop)) {
        Result given_up = Failure{Failure::Kind::cancelled, "the next attempt", "the call was given up"};
        given_up.attempts = attempt;
        given_up.seconds = watch.seconds();
        return given_up;
      }
    }
  }

 private:
  static constexpr double longest_call_seconds = 1e9;  // beyond it the clock overflows

  ClientConfig config_;
  detail::Address address_;
  detail::KeptConnections kept_;
};

}  // namespace rlalgo::http
