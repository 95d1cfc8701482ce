// One attempt at one request, behind functions whose bodies can be compiled apart: they hold Boost.Asio and Beast.
//
// By default every translation unit that includes this file compiles them; with RLALGO_COMPILED the library
// rlalgo::compiled_http holds them (core/compiled.hpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <rlalgo/http/detail/address.hpp>
#include <rlalgo/http/message.hpp>
#include <rlalgo/http/result.hpp>

namespace rlalgo::http::detail {

// Open connections of a client between its calls.
class KeptConnections {
 public:
  struct Kept {
    int descriptor = -1;
    bool ipv6 = false;
  };

  KeptConnections() = default;
  KeptConnections(KeptConnections&& other) noexcept : kept_(std::move(other.kept_)) { other.kept_.clear(); }
  KeptConnections(const KeptConnections&) = delete;
  KeptConnections& operator=(const KeptConnections&) = delete;
  KeptConnections& operator=(KeptConnections&&) = delete;
  ~KeptConnections() {
    for (const Kept& one : kept_) ::close(one.descriptor);
  }

  [[nodiscard]] std::optional<Kept> take() {
    const std::lock_guard lock(mutex_);
    if (kept_.empty()) return std::nullopt;
    const Kept out = kept_.back();
    kept_.pop_back();
    return out;
  }
  void keep(Kept one) {
    {
      const std::lock_guard lock(mutex_);
      if (kept_.size() < most) return kept_.push_back(one);
    }
    ::close(one.descriptor);
  }

 private:
  static constexpr std::size_t most = 8;
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

struct AttemptTask {
  const Address& address;
  const Request& request;
  double connect_seconds;
  std::size_t header_limit, body_limit;
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
  std::function<void(std::string_view)> on_body = {};
  std::function<void()> waiting = {};  // called every so many seconds while there is no answer
  double waiting_seconds = 60.0;
};

template <class Unit>
struct Caller {
  static Result attempt(const AttemptTask& task, KeptConnections& kept);
};

// False when the token was used before the seconds were over.
[[nodiscard]] inline bool wait_for(double seconds, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  changed.wait_for(lock, stop, wait, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace rlalgo::http::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/http/detail/attempt_asio.hpp>
#endif
