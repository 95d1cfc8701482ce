#include <rlalgo/http/retry.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using Kind = http::Failure::Kind;

namespace {

// 1994-11-06 08:49:37 UTC, the date of RFC 9110's examples: 784,111,777 s.
const std::chrono::system_clock::time_point now{std::chrono::seconds(784111777)};

std::optional<double> asked(const std::string& value) {
  return http::retry_after({.headers = {{"retry-after", value}}}, now);
}

}  // namespace

TEST_CASE("Retry-After is a number of seconds or a date") {
  CHECK(asked("120") == 120.0);
  CHECK(asked("0") == 0.0);
  CHECK(asked("Sun, 06 Nov 1994 08:49:37 GMT") == 0.0);
  CHECK(asked("Sun, 06 Nov 1994 08:50:07 GMT") == 30.0);
  CHECK(asked("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0);
  CHECK(asked("Tue, 29 Feb 2000 00:00:00 GMT") == 951782400.0 - 784111777.0);
  for (const char* text : {"", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT",
                           "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET"}) {
    INFO(text);
    CHECK_FALSE(asked(text).has_value());
  }
  CHECK_FALSE(http::retry_after({}, now).has_value());
}

TEST_CASE("waits double up to the longest, and are as long as the server asks") {
  const http::RetryPolicy policy{.retries = 7, .longest_wait = 16.0};
  const http::Result broken = http::Failure{Kind::broken, "", ""};
  std::vector<double> waits;
  for (std::int64_t attempts = 1; attempts <= 7; ++attempts)
    waits.push_back(http::wait_before_retry(policy, broken, attempts, now).value());
  CHECK(waits == std::vector<double>{0.5, 1, 2, 4, 8, 16, 16});
  CHECK_FALSE(http::wait_before_retry(policy, broken, 8, now).has_value());
  const http::Result busy = http::Response{.status = 429, .headers = {{"Retry-After", "20"}}};
  CHECK(http::wait_before_retry(policy, busy, 1, now) == 20.0);
  const http::Result quick = http::Response{.status = 503, .headers = {{"Retry-After", "0"}}};
  CHECK(http::wait_before_retry(policy, quick, 3, now) == 2.0);
}

TEST_CASE("what is repeated and what is final") {
  const http::RetryPolicy policy;
  const auto repeated = [&](http::Result result) {
    return http::wait_before_retry(policy, result, 1, now).has_value();
  };
  for (const int status : {429, 502, 503, 504}) CHECK(repeated(http::Response{.status = status}));
  for (const int status : {200, 204, 302, 400, 404, 408, 422, 500, 501})
    CHECK_FALSE(repeated(http::Response{.status = status}));
  for (const Kind kind : {Kind::unreachable, Kind::broken}) CHECK(repeated(http::Failure{kind, "", ""}));
  for (const Kind kind : {Kind::timeout, Kind::cancelled, Kind::too_large, Kind::malformed})
    CHECK_FALSE(repeated(http::Failure{kind, "", ""}));
}

TEST_CASE("a retry is told about in one line") {
  CHECK(http::Retry{"GET http://h/x", "HTTP 503", 2, 6, 0.5}.text() ==
        "GET http://h/x: HTTP 503; attempt 2 of 6 in 0.5 s");
}
