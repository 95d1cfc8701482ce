// Which weights a generation server has: they are pushed by a publish, once per version.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync::detail {

class ServerVersion {
 public:
  // `start_seconds`: how long the first push waits for the server to be up; `tell` hears that it does.
  ServerVersion(http::ClientConfig server, double start_seconds, std::function<void(const std::string&)> tell)
      : client(std::move(server)), start_seconds_(start_seconds), tell_(std::move(tell)) {}

  http::JsonClient client;
  std::int64_t version = -1;  // that the server has; −1 before the first publish

  // Calls push(), which returns the bytes it sent, when the server has another version.
  template <class Push>
  Published publish(std::int64_t next, Push&& push) {
    if (next == version) return {.version = version};
    const core::Stopwatch watch;
    if (version < 0)
      client.wait_until_up("/health/", start_seconds_,
                           "start it, see trl.vllm_server_host and vllm_server_port, or raise trl.vllm_server_timeout",
                           tell_);
    const std::int64_t bytes = push();
    version = next;
    return {.version = version, .status = Published::Status::sent, .bytes = bytes, .seconds = watch.seconds()};
  }

 private:
  double start_seconds_;
  std::function<void(const std::string&)> tell_;
};

}  // namespace rlalgo::sync::detail
