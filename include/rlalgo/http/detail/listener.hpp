// What a server is made of, behind functions whose bodies can be compiled apart (detail/attempt.hpp says how).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <rlalgo/http/exchange.hpp>

namespace rlalgo::http {

struct ServerConfig {
  std::string host = "127.0.0.1";  // digits; 0.0.0.0 and :: are all addresses of the machine
  std::uint16_t port = 0;
  int threads = 2;
  std::size_t connections = 8192;                     // at once
  std::size_t header_limit = std::size_t{64} << 10;   // bytes of a request's header
  std::size_t body_limit = std::size_t{64} << 20;     // bytes of its body
  std::size_t output_limit = std::size_t{16} << 20;   // bytes of an answer that may wait for a slow client
  double idle_seconds = 120.0;                        // between two requests of a connection
  double header_seconds = 10.0;                       // from a request's first byte to the end of its header
  double body_seconds = 120.0;                        // from there to the end of its body
  double write_seconds = 30.0;                        // without the client taking a byte of its answer
  std::function<void(const std::string&)> tell = {};  // what handlers throw
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

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
