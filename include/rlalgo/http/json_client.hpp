// JSON over HTTP to one server: what client.hpp does, with JSON bodies and numbered errors.
//
// Calls are repeated as ClientConfig::retries says and must therefore be safe to repeat.
//
// Errors:
//   [rlalgo.http.1] no connection, a broken one, or no answer in time
//   [rlalgo.http.2] the server refuses with an HTTP status
//   [rlalgo.http.3] the answer is not JSON
//   [rlalgo.http.5] a server that was waited for is not up in time
//   [rlalgo.http.6] the answer is larger than the limit, beyond the limits of core/bounded_json.hpp, or no HTTP
//   [rlalgo.http.7] the call was given up (a os::Interrupted)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/http/reply_message.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>

namespace rlalgo::http {

class JsonClient {
 public:
  using Json = nlohmann::ordered_json;

  explicit JsonClient(ClientConfig config) : client_(std::move(config)) {}

  [[nodiscard]] const std::string& base_url() const noexcept { return client_.base_url(); }

  // The body of a 2xx response as JSON (null for an empty one). `path` begins with '/'.
  Json get(const std::string& path, const CallOptions& options = {}) {
    return json_of(look(path, options), "GET " + base_url() + path);
  }
  Json post(const std::string& path, const Json& body, const CallOptions& options = {}) {
    return json_of(ask(path, body, options), "POST " + base_url() + path);
  }
  // The same of a body that is no JSON.
  Json post_bytes(const std::string& path, std::string body, const CallOptions& options = {}) {
    return json_of(call({.method = "POST",
                         .target = path,
                         .headers = {{"Content-Type", "application/octet-stream"}},
                         .body = std::move(body)},
                        options),
                   "POST " + base_url() + path);
  }
  // GET and POST; a response of any status is an answer. [rlalgo.http.1], [rlalgo.http.6], [rlalgo.http.7]
  Result look(const std::string& path, const CallOptions& options = {}) {
    return call({.method = "GET", .target = path}, options);
  }
  // GET, tried once, for no longer than a call may take; no answer is no error.
  Result glance(const std::string& path, CallOptions options = {.seconds = 10.0}) {
    Client one_attempt(once(client_.config()));
    options.seconds = std::min(options.seconds, client_.config().call_seconds);
    return one_attempt.call({.method = "GET", .target = path}, options);
  }
  Result ask(const std::string& path, const Json& body, const CallOptions& options = {}) {
    return call({.method = "POST",
                 .target = path,
                 .headers = {{"Content-Type", "application/json"}},
                 .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)},
                options);
  }

  // The error of a response that is not 2xx. [rlalgo.http.2]
  [[noreturn]] static void refuse(const Result& result, const std::string& where) {
    core::raise("http", 2,
                {.what = "a server refuses a request",
                 .found = described(result.response()),
                 .expected = "HTTP 200",
                 .where = where + spent(result.seconds, result.attempts),
                 .remedy = "its own log says more"});
  }
  // "HTTP 422", and the beginning of its message.
  [[nodiscard]] static std::string described(const Response& response) {
    return "HTTP " + std::to_string(response.status) +
           (response.body.empty() ? "" : " " + shortened(reply_message(response.body)));
  }

  // Returns once GET `path` is answered with 2xx, or with a redirect (servers that know the path with another slash at
  // its end); tried every second, for `seconds`. `tell` hears once that there is something to wait for. `remedy` ends the error text. [rlalgo.http.5], [rlalgo.http.7]
  void wait_until_up(const std::string& path, double seconds, const std::string& remedy,
                     const std::function<void(const std::string&)>& tell = {}, std::stop_token stop = {}) {
    const os::Stopwatch watch;
    const std::string where = "GET " + base_url() + path;
    for (bool reported = false;; reported = true) {
      const double left = seconds - watch.seconds();
      const Result result = glance(path, {.seconds = std::clamp(left, shortest_look, 10.0), .stop = stop});
      if (result.ok() || is_redirect(result)) return;
      if (watch.seconds() >= seconds) {
        core::raise("http", 5,
                    {.what = "a server is not up",
                     .found = result.answered() ? result.text() : "no answer (" + result.text() + ")",
                     .expected = "HTTP 200",
                     .where = where + spent(watch.seconds(), 0),
                     .remedy = remedy});
      }
      if (!reported && tell) tell(where + ": " + result.text() + "; waiting at most " + rounded(seconds) + " s");
      pause(seconds - watch.seconds(), stop, "a server to be up", where);
    }
  }

  // POST, every second again for `seconds` while `busy` says so of the answer; the last answer, whatever it is. `tell` as
  // above. [rlalgo.http.1], [rlalgo.http.6], [rlalgo.http.7]
  Result ask_while(const std::function<bool(const Response&)>& busy, const std::string& path, const Json& body,
                   double seconds, const std::function<void(const std::string&)>& tell = {}) {
    const os::Stopwatch watch;
    const std::string where = "POST " + base_url() + path;
    for (bool reported = false;; reported = true) {
      Result result = ask(path, body);
      if (!busy(result.response()) || watch.seconds() >= seconds) return result;
      if (!reported && tell)
        tell(where + ": " + described(result.response()) + "; waiting at most " + rounded(seconds) + " s");
      pause(seconds - watch.seconds(), {}, "a server to be free", where);
    }
  }

 private:
  static constexpr double shortest_look = 1.0;  // seconds, also when the wait is over

  // A second, or what is left; `awaited` is what was waited for when it is given up.
  void pause(double left, const std::stop_token& stop, const char* awaited, const std::string& where) const {
    if (!detail::wait_for(std::clamp(left, 0.001, 1.0), stop.stop_possible() ? stop : client_.config().stop))
      give_up(Failure{Failure::Kind::cancelled, awaited, "the call was given up"}, where);
  }

  static bool is_redirect(const Result& result) {
    return result.answered() && (result.response().status == 307 || result.response().status == 308);
  }

  static ClientConfig once(ClientConfig config) {
    config.retries.retries = 0;
    return config;
  }

  // An answer of any status.
  Result call(Request request, const CallOptions& options) {
    const std::string where = request.method + " " + base_url() + request.target;
    Result result = client_.call(std::move(request), options);
    if (!result.answered()) give_up(result, where);
    return result;
  }

  [[noreturn]] static void give_up(const Result& result, const std::string& where) {
    const Failure& failure = result.failure();
    const std::string place = where + spent(result.seconds, result.attempts);
    if (failure.kind == Failure::Kind::too_large || failure.kind == Failure::Kind::malformed)
      core::raise("http", 6, {.what = "a server's answer cannot be read", .found = failure.text(), .where = place});
    if (failure.kind == Failure::Kind::cancelled)
      os::raise_interrupted("http", 7,
                            {.what = "a call to a server was given up", .found = failure.text(), .where = place});
    core::raise("http", 1,
                {.what = "a server cannot be reached or does not answer",
                 .found = failure.text(),
                 .where = place,
                 .remedy = "is it running there, and is the network between open?"});
  }

  static Json json_of(const Result& result, const std::string& where) {
    if (!result.ok()) refuse(result, where);
    const std::string& body = result.response().body;
    if (body.empty()) return nullptr;
    auto [answer, problem] = core::read_json<Json>(body);
    if (problem.beyond_limit)
      core::raise("http", 6, {.what = "a server's answer cannot be read", .found = problem.text, .where = where});
    if (!problem.text.empty())
      core::raise("http", 3, {.what = "a server's answer is not JSON", .found = shortened(body), .where = where});
    return std::move(answer);
  }

  static std::string rounded(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", seconds);
    return text;
  }
  static std::string spent(double seconds, std::int64_t attempts) {
    return " (" + rounded(seconds) + " s" + (attempts > 0 ? ", " + std::to_string(attempts) + " attempts)" : ")");
  }
  static std::string shortened(const std::string& text) {
    return text.size() <= 300 ? text : text.substr(0, 300) + "…";
  }

  Client client_;
};

}  // namespace rlalgo::http
