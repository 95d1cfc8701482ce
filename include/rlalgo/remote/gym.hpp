// A NeMo Gym that runs: its servers found through the head, waited for, and asked.
//
// A server is waited for until it answers, whatever it answers. A call is made with a session's cookies, which the reply
// may add to; how it ended is a value, with a class that failures are counted by. After a restart servers have other ports:
// discover() asks the head again.
//
// Failures: unreachable (no connection, or one that broke), timeout, status (HTTP 5xx, 408, 429, also after the retries),
// refused (any other status that is no 2xx), malformed (no JSON object), judge (the server says itself that it failed).
//
// Errors: [rlalgo.remote.70–72] gym_directory.hpp; [.73] the Gym, or a server of it, is not up in time; [rlalgo.http.7] the
// run is stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/remote/gym_directory.hpp>

namespace rlalgo::remote {

struct GymConfig {
  std::string head = "http://127.0.0.1:11000";
  double start_seconds = 600.0;  // until the head and the servers that are needed answer
  std::int64_t retries = 1;      // of one call, within its time
  std::function<nlohmann::ordered_json(const std::string& yaml)> yaml{};  // what the head's text says
  std::function<void(const std::string&)> tell = {};                      // a line for the log
  std::function<void()> still_starting = {};  // asked while nobody answers: throws when there is nothing to wait for
  std::stop_token stop = {};
};

// The cookies of one session.
class GymCookies {
 public:
  void keep(const http::Headers& headers);
  [[nodiscard]] std::string header() const;  // empty: there are none

 private:
  std::map<std::string, std::string> values_;
};

struct GymReply {
  nlohmann::ordered_json body = nullptr;  // an object, if `failure` is empty
  std::string failure = {};               // a class, or empty
  std::string detail = {};                // for a person
  int status = 0;                         // 0: no answer
};

class Gym {
 public:
  using Json = nlohmann::ordered_json;

  explicit Gym(GymConfig config);

  struct Needed {
    GymKind kind;
    std::string name;
    std::string where;  // who needs it
  };
  // Waits for the head, and for the servers that are needed; their addresses are new afterwards.
  void discover(const std::vector<Needed>& needed);

  [[nodiscard]] const GymDirectory& directory() const noexcept { return directory_; }
  [[nodiscard]] const GymConfig& config() const noexcept { return config_; }

  // POST, from any thread, within `seconds` for all attempts. `cookies` may be null.
  GymReply post(const std::string& url, const std::string& path, const Json& body, double seconds, GymCookies* cookies);

  // What a reply of an environment says about itself: a failure of its own, or "".
  [[nodiscard]] static std::string own_failure(const Json& body);

 private:
  http::Client& client(const std::string& url);
  Json document();
  void pause(double seconds);

  GymConfig config_;
  GymDirectory directory_;
  std::function<void(const std::string&)> waiting_;  // of its clients; may be empty
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<http::Client>> clients_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/gym_impl.hpp>
#endif
