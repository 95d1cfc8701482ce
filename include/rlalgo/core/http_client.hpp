// JSON over HTTP to one server: deadlines on every wait, retries that are told about, numbered errors.
//
// A request is tried `1 + retries` times when the connection fails, breaks or times out, and when the server answers
// 500, 502 or 503; waits of 0.5, 1, 2, … s (at most 16 s) lie between. Every other answer that is not 2xx is final.
// Requests must therefore be safe to repeat. One object is for one thread; the connection is kept open.
//
// Errors: [rlalgo.core.2] no connection, a broken one, or no answer in time; [rlalgo.core.3] the server refuses with an
// HTTP status; [rlalgo.core.4] the answer is not JSON; [rlalgo.core.5] the address is no http URL (exit
// 2); [rlalgo.core.6] a server that was waited for is not up in time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/core/error.hpp>

#undef _res  // a macro of <resolv.h>, which httplib includes; Eigen has parameters of that name

namespace rlalgo::core {

struct HttpConfig {
  std::string base_url;           // http://host:port, a path may follow
  double connect_seconds = 10.0;  // one attempt to connect
  double answer_seconds = 600.0;  // one request, from sending to the last byte of the answer
  std::int64_t retries = 5;       // further attempts
  double longest_wait = 16.0;     // seconds between two attempts, at most
};

class HttpClient {
 public:
  using Json = nlohmann::ordered_json;

  explicit HttpClient(HttpConfig config) : config_(std::move(config)) {
    std::string address = config_.base_url;
    while (!address.empty() && address.back() == '/') address.pop_back();
    const std::string scheme = "http://";
    const std::size_t path = address.starts_with(scheme) ? address.find('/', scheme.size()) : 0;
    const std::string origin = address.substr(0, path);
    if (path == 0 || origin.size() <= scheme.size() || !httplib::Client(origin).is_valid())
      raise_usage("core", 5,
                  {.what = "the address of a server cannot be used",
                   .found = config_.base_url,
                   .expected = "http://HOST:PORT",
                   .remedy = "https needs a proxy beside this program"});
    prefix_ = path == std::string::npos ? "" : address.substr(path);
    client_ = std::make_unique<httplib::Client>(origin);
    client_->set_keep_alive(true);
    client_->set_tcp_nodelay(true);
  }

  [[nodiscard]] const std::string& base_url() const noexcept { return config_.base_url; }

  // The answer to one request as JSON (null for an empty body). `path` begins with '/'. answer_seconds 0: the default.
  Json get(const std::string& path, double answer_seconds = 0) {
    return request("GET", path, answer_seconds, [&] { return client_->Get(prefix_ + path); });
  }
  Json post(const std::string& path, const Json& body, double answer_seconds = 0) {
    const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    return request("POST", path, answer_seconds,
                   [&] { return client_->Post(prefix_ + path, text, "application/json"); });
  }

  // Returns once GET `path` is answered with 2xx; tried every second, for `seconds`. `remedy` ends the error text.
  void wait_until_up(const std::string& path, double seconds, const std::string& remedy) {
    const Deadline deadline(seconds);
    const Stopwatch watch;
    std::string why;
    while (!answers(path, why)) {
      if (deadline.passed()) {
        char waited[64];
        std::snprintf(waited, sizeof waited, " (%.1f s)", watch.seconds());
        raise("core", 6,
              {.what = "a server is not up",
               .found = why,
               .expected = "HTTP 200",
               .where = "GET " + config_.base_url + path + waited,
               .remedy = remedy});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(std::clamp(deadline.milliseconds_left(), 1, 1000)));
    }
  }

 private:
  // One attempt; `why` says what happened when the answer is not 2xx.
  bool answers(const std::string& path, std::string& why) {
    limit(std::min(10.0, config_.connect_seconds), 10.0);
    const httplib::Result result = client_->Get(prefix_ + path);
    if (result && result->status >= 200 && result->status < 300) return true;
    why = result ? "HTTP " + std::to_string(result->status) : "no answer (" + httplib::to_string(result.error()) + ")";
    return false;
  }

  template <class Send>
  Json request(const std::string& verb, const std::string& path, double answer_seconds, Send send) {
    const Stopwatch watch;
    const std::string where = verb + " " + config_.base_url + path;
    double wait = 0.5;
    for (std::int64_t attempt = 0;; ++attempt) {
      limit(config_.connect_seconds, answer_seconds > 0 ? answer_seconds : config_.answer_seconds);
      const httplib::Result result = send();
      if (result && result->status >= 200 && result->status < 300) return parse(result->body, where);
      const bool transient = !result || result->status == 500 || result->status == 502 || result->status == 503;
      if (!transient || attempt >= config_.retries) fail(result, where, attempt + 1, watch.seconds());
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(wait, config_.longest_wait)));
      wait *= 2;
    }
  }

  void limit(double connect_seconds, double answer_seconds) {
    const auto split = [](double seconds, auto set) {
      const auto whole = static_cast<time_t>(seconds);
      set(whole, static_cast<time_t>((seconds - static_cast<double>(whole)) * 1e6));
    };
    split(connect_seconds, [&](time_t s, time_t us) { client_->set_connection_timeout(s, us); });
    split(answer_seconds, [&](time_t s, time_t us) { client_->set_read_timeout(s, us); });
    split(answer_seconds, [&](time_t s, time_t us) { client_->set_write_timeout(s, us); });
  }

  static Json parse(const std::string& body, const std::string& where) {
    if (body.empty()) return nullptr;
    Json answer = Json::parse(body, nullptr, false);
    if (answer.is_discarded())
      raise("core", 4, {.what = "a server's answer is not JSON", .found = shortened(body), .where = where});
    return answer;
  }

  [[noreturn]] static void fail(const httplib::Result& result, const std::string& where, std::int64_t attempts,
                                double seconds) {
    char waited[64];
    std::snprintf(waited, sizeof waited, " (%.1f s, %lld attempts)", seconds, static_cast<long long>(attempts));
    if (!result)
      raise("core", 2,
            {.what = "a server cannot be reached or does not answer",
             .found = httplib::to_string(result.error()),
             .where = where + waited,
             .remedy = "is it running there, and is the network between open?"});
    raise("core", 3,
          {.what = "a server refuses a request",
           .found =
               "HTTP " + std::to_string(result->status) + (result->body.empty() ? "" : " " + shortened(result->body)),
           .expected = "HTTP 200",
           .where = where + waited,
           .remedy = "its own log says more"});
  }

  static std::string shortened(const std::string& text) {
    return text.size() <= 300 ? text : text.substr(0, 300) + "…";
  }

  HttpConfig config_;
  std::string prefix_;
  std::unique_ptr<httplib::Client> client_;
};

}  // namespace rlalgo::core
