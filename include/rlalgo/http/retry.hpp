// When a call is tried again, and how long it waits before.
//
// An attempt is repeated when the connection fails or breaks, or when the status is one of `statuses`. The wait doubles
// from `first_wait` to `longest_wait`; a Retry-After of the response makes it longer. A wait that would outlast the
// deadline of the call is not begun: the last response or failure is the result. Only calls that are safe to repeat may
// have retries.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <rlalgo/http/result.hpp>

namespace rlalgo::http {

// An attempt that failed and will be repeated.
struct Retry {
  std::string where;    // "POST http://host:port/path"
  std::string what;     // how it ended
  std::int64_t next;    // number of the attempt to come, from 2
  std::int64_t of;      // attempts at most
  double wait_seconds;  // until then
  bool answered;        // by a response; else the connection broke, or nobody answered

  [[nodiscard]] std::string text() const {
    char wait[32];
    std::snprintf(wait, sizeof wait, "%.1f", wait_seconds);
    return where + ": " + what + "; attempt " + std::to_string(next) + " of " + std::to_string(of) + " in " + wait +
           " s";
  }
};

struct RetryPolicy {
  std::int64_t retries = 5;                          // further attempts
  double first_wait = 0.5;                           // seconds
  double longest_wait = 16.0;                        // seconds, unless the server asks for more
  std::vector<int> statuses = {429, 502, 503, 504};  // too many requests; a gateway without its server
  std::function<void(const Retry&)> tell = {};       // called before each wait
};

// Seconds that a Retry-After header asks for: a number of them, or a date (RFC 9110, IMF-fixdate). Never negative.
[[nodiscard]] inline std::optional<double> retry_after(const Response& response,
                                                       std::chrono::system_clock::time_point now) {
  const std::string* value = find_header(response.headers, "Retry-After");
  if (value == nullptr) return std::nullopt;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), seconds);
  if (error == std::errc() && end == value->data() + value->size() && seconds >= 0) return static_cast<double>(seconds);
  static constexpr std::array months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  char month_name[4] = {}, zone[4] = {};
  unsigned day = 0;
  int year = 0, hour = 0, minute = 0, second = 0;
  if (std::sscanf(value->c_str(), "%*3s, %2u %3s %4d %2d:%2d:%2d %3s", &day, month_name, &year, &hour, &minute, &second,
                  zone) != 7 ||
      std::string(zone) != "GMT")
    return std::nullopt;
  const auto month = std::find(months.begin(), months.end(), std::string(month_name));
  if (month == months.end()) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month - months.begin()) + 1),
                                         std::chrono::day(day));
  if (!date.ok()) return std::nullopt;
  const auto at = std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
                  std::chrono::seconds(second);
  return std::max(0.0, std::chrono::duration<double>(at - now).count());
}

// The wait before the attempt after `attempts` ones, or nothing when `result` is final.
[[nodiscard]] inline std::optional<double> wait_before_retry(const RetryPolicy& policy, const Result& result,
                                                             std::int64_t attempts,
                                                             std::chrono::system_clock::time_point now) {
  if (attempts > policy.retries) return std::nullopt;
  const double wait = std::min(
      policy.longest_wait, policy.first_wait * static_cast<double>(1LL << std::min<std::int64_t>(attempts - 1, 40)));
  if (!result.answered()) {
    const Failure::Kind kind = result.failure().kind;
    if (kind != Failure::Kind::unreachable && kind != Failure::Kind::broken) return std::nullopt;
    return wait;
  }
  const Response& response = result.response();
  if (std::find(policy.statuses.begin(), policy.statuses.end(), response.status) == policy.statuses.end())
    return std::nullopt;
  return std::max(wait, retry_after(response, now).value_or(0.0));
}

}  // namespace rlalgo::http
