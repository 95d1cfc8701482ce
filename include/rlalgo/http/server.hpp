// An HTTP/1.1 server for programs: a fixed number of threads, however many connections; limits on everything a client
// sends; answers that are whole, or streamed as they come, from any thread; a graceful end.
//
//   Server server({.port = 8000}, [](std::shared_ptr<Exchange> exchange) {
//     if (exchange->request().target != "/health") return exchange->respond({.status = 404});
//     exchange->respond({.body = "ok"});
//   });
//
// The handler runs on the server's threads and must not block: what takes long keeps the exchange and answers later.
// A connection that waits for its next request costs about a kilobyte and no thread. An exception of the handler, and
// an exchange that is dropped unanswered, is status 500. No TLS, no compression.
//
// What a client may not do, and what becomes of it: a header beyond header_limit 431 · a body beyond body_limit 413, and
// beyond bodies_limit with those of others 503 ·
// no HTTP 400 · a header or body that does not come in time 408 · beyond `connections` (and seven eighths of the open
// files that the process may have) the one that has waited longest for a header makes room, or else the newest is closed · an
// answer that is not taken for write_seconds, or of which output_limit bytes pile up, ends its connection.
//
// Errors:
//   [rlalgo.http.8] the address cannot be listened on
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/detail/listener.hpp>
#include <rlalgo/http/exchange.hpp>
#include <rlalgo/http/message.hpp>

namespace rlalgo::http {

class Server {
 public:
  // Listens when the constructor returns. With port 0 the system chooses one.
  Server(ServerConfig config, Handler handler)
      : host_(config.host), core_(detail::Listener<void>::start(std::move(config), std::move(handler))) {}
  ~Server() { stop(0.0); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const { return core_->port(); }
  [[nodiscard]] std::string url() const { return "http://" + host_ + ":" + std::to_string(port()); }
  [[nodiscard]] std::size_t connections() const { return core_->connections(); }

  // Takes no more connections and requests, waits at most `seconds` for the answers under way, then closes what is left.
  void stop(double seconds) { core_->stop(seconds); }

 private:
  std::string host_;
  std::unique_ptr<detail::ListenerBase> core_;
};

}  // namespace rlalgo::http
