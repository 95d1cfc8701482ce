// Which weights a generation server has: they are pushed when the sampler asks which version it is about to generate
// with, once per version, so that steps without a generation send nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <rlalgo/http/json_client.hpp>

namespace rlalgo::sync::detail {

class ServerVersion {
 public:
  // `start_seconds`: how long the first push waits for the server to be up; `tell` hears that it does.
  ServerVersion(http::ClientConfig server, double start_seconds, std::function<void(const std::string&)> tell)
      : client(std::move(server)), start_seconds_(start_seconds), tell_(std::move(tell)) {}

  http::JsonClient client;
  std::int64_t version = -1;  // in force

  // Calls push() when the server has another version than the one in force; returns that one.
  template <class Push>
  std::int64_t require(Push&& push) {
    if (pushed_ == version) return version;
    if (pushed_ < 0)
      client.wait_until_up("/health/", start_seconds_,
                           "start it, see trl.vllm_server_host and vllm_server_port, or raise trl.vllm_server_timeout",
                           tell_);
    push();
    pushed_ = version;
    return version;
  }

 private:
  double start_seconds_;
  std::function<void(const std::string&)> tell_;
  std::int64_t pushed_ = -1;
};

}  // namespace rlalgo::sync::detail
