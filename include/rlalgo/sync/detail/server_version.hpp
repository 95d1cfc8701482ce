// Which weights a generation server has: they are pushed by a publish, once per version. Which routes it has is asked
// before the first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/http/json_client.hpp>
#include <rlalgo/http/served_routes.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync::detail {

class ServerVersion {
 public:
  // `start_seconds`: how long the first push waits for the server to be up; `tell` hears that it does.
  ServerVersion(http::ClientConfig server, double start_seconds, std::function<void(const std::string&)> tell)
      : client(std::move(server)), start_seconds_(start_seconds), tell_(std::move(tell)) {}

  http::JsonClient client;
  std::int64_t version = -1;  // that the server has; −1 before the first publish

  [[nodiscard]] double start_seconds() const { return start_seconds_; }

  // From the first publish on.
  [[nodiscard]] const http::ServedRoutes& routes() const { return *routes_; }

  // What a server of rlalgo's calls the weights of a version (remote/vllm_client.hpp reads it).
  [[nodiscard]] static std::string name_of(std::int64_t version) { return "v" + std::to_string(version); }

  // The server may be another one now: what it has and can is asked and sent anew by the next publish.
  void forget() { version = -1; }

  // Until the server is up.
  static void wait(http::JsonClient& client, double start_seconds,
                   const std::function<void(const std::string&)>& tell) {
    client.wait_until_up("/health/", start_seconds,
                         "start it, see trl.vllm_server_host and vllm_server_port, or raise trl.vllm_server_timeout",
                         tell);
  }

  // Calls push(), which returns the bytes it sent, when the server has another version.
  template <class Push>
  Published publish(std::int64_t next, Push&& push) {
    if (next == version) return {.version = version};
    const os::Stopwatch watch;
    if (version < 0) {
      wait(client, start_seconds_, tell_);
      static constexpr std::string_view in_question[] = {"/http_update_weights/", "/start_weight_update"};
      routes_.emplace(client, in_question);
    }
    const std::int64_t bytes = push();
    version = next;
    return {.version = version, .status = Published::Status::sent, .bytes = bytes, .seconds = watch.seconds()};
  }

 private:
  double start_seconds_;
  std::function<void(const std::string&)> tell_;
  std::optional<http::ServedRoutes> routes_;
};

}  // namespace rlalgo::sync::detail
