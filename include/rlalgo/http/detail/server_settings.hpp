// The settings of a server, and what it calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <rlalgo/http/exchange.hpp>
#include <rlalgo/http/message.hpp>

namespace rlalgo::http {

// What becomes of a request whose header has come and whose body has not.
struct Admission {
  std::optional<Response> refusal = {};  // the answer; its body is not read
  std::size_t body_limit = static_cast<std::size_t>(-1);
};

struct ServerConfig {
  std::string host = "127.0.0.1";  // digits; 0.0.0.0 and :: are all addresses of the machine
  std::uint16_t port = 0;
  int threads = 2;
  std::size_t connections = 8192;                     // at once
  std::size_t header_limit = std::size_t{64} << 10;   // bytes of a request's header
  std::size_t body_limit = std::size_t{64} << 20;     // bytes of its body
  std::size_t bodies_limit = std::size_t{2} << 30;    // bytes of all bodies that are being read or answered
  std::size_t output_limit = std::size_t{16} << 20;   // bytes of an answer that may wait for a slow client
  double idle_seconds = 120.0;                        // between two requests of a connection
  double header_seconds = 10.0;                       // from a request's first byte to the end of its header
  double body_seconds = 120.0;                        // from there to the end of its body
  double write_seconds = 30.0;                        // without the client taking a byte of its answer
  std::function<void(const std::string&)> tell = {};  // what handlers throw
  // Asked of every header before a byte of the body is kept; `length`: of the body, where the header has it. On a thread of the
  // server, must not block.
  std::function<Admission(const Request& head, std::optional<std::uint64_t> length)> admit = {};
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace rlalgo::http
