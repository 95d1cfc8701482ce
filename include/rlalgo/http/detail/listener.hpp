// What a server is made of, behind functions whose bodies can be compiled apart (detail/attempt.hpp says how).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rlalgo/http/detail/server_settings.hpp>

namespace rlalgo::http {

namespace detail {

class ListenerBase {
 public:
  virtual ~ListenerBase() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual std::size_t connections() const = 0;
  virtual void stop(double seconds) = 0;
};

template <class Unit>
struct Listener {
  static std::unique_ptr<ListenerBase> start(ServerConfig config, Handler handler);
};

}  // namespace detail
}  // namespace rlalgo::http

#ifndef RLALGO_COMPILED
#include <rlalgo/http/detail/listener_asio.hpp>
#endif
