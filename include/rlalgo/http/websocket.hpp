// A WebSocket client (RFC 6455): one connection, messages in both directions, a deadline for every call.
//
//   WebSocket socket({.url = "ws://127.0.0.1:8000/ws"});
//   if (!socket.connect().ok()) …             101 is ok; any other answer of the server is a value, too
//   socket.send(R"({"type": "reset"})");      nothing, or why it failed
//   const Received got = socket.receive();    a message, the server's goodbye, or why there is neither
//   socket.close();                           the closing handshake
//
// Every call ends within its seconds whatever the server does: drips, sends frames without end, reads nothing, goes
// away. Messages come whole, whatever fragments they were sent in, up to a limit; text is valid UTF-8. Pings are
// answered while a call waits; a server that is silent is pinged, and is gone when that has no answer. After a failure or
// a goodbye the connection is closed: connect() begins anew. One thread at a time; a stop token may be used from any.
// There is no TLS, no compression, and no call is repeated.
//
// Errors:
//   [rlalgo.http.9] the address is no ws URL (exit 2)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/detail/address.hpp>
#include <rlalgo/http/detail/conversation.hpp>
#include <rlalgo/http/message.hpp>
#include <rlalgo/http/result.hpp>

namespace rlalgo::http {

struct WebSocketConfig {
  std::string url{};            // ws://host:port/path?query
  Headers headers = {};         // beside those of the handshake
  double connect_seconds = 10;  // name, connection and handshake
  double call_seconds = 600;    // one send or receive
  double close_seconds = 5;     // the closing handshake
  double ping_seconds = 20;     // silence within a receive after which the server is pinged; 0 = never
  double pong_seconds = 20;     // silence after a ping that ends the connection
  std::size_t message_limit = std::size_t{64} << 20;  // bytes
};

struct WaitOptions {
  double seconds = 0.0;       // instead of the configuration's, when above 0
  std::stop_token stop = {};  // a call ends within milliseconds when it is asked to
};

class WebSocket {
 public:
  explicit WebSocket(WebSocketConfig config) : config_(std::move(config)) {
    constexpr std::string_view scheme = "ws://";
    const std::string_view url = config_.url;
    const std::size_t query = url.find('?');
    std::optional<detail::Address> address;
    if (url.starts_with(scheme) && url.find('#') == std::string_view::npos && detail::is_plain(url))
      address = detail::parse_address("http://" + std::string(url.substr(scheme.size(), query - scheme.size())));
    if (!address)
      core::raise_usage("http", 9,
                        {.what = "the address of a WebSocket cannot be used",
                         .found = config_.url,
                         .expected = "ws://HOST:PORT/PATH",
                         .remedy = "wss needs a proxy beside this program"});
    address_ = std::move(*address);
    target_ = address_.path.empty() ? "/" : address_.path;
    if (query != std::string_view::npos) target_ += url.substr(query);
  }

  [[nodiscard]] const WebSocketConfig& config() const noexcept { return config_; }

  // Connects, anew where there is a connection already. The answer to the handshake: ok() is false for a server that
  // declines it, which has answered with a status of its own.
  Result connect(const WaitOptions& options = {}) {
    conversation_ = detail::Conversations<void>::make({.address = address_,
                                                       .target = target_,
                                                       .headers = config_.headers,
                                                       .ping_seconds = config_.ping_seconds,
                                                       .pong_seconds = config_.pong_seconds,
                                                       .message_limit = config_.message_limit});
    Result result = conversation_->connect(limit(options, config_.connect_seconds));
    const bool open = result.answered() && result.response().status == 101;
    if (!open) conversation_.reset();
    return result;
  }

  [[nodiscard]] bool connected() const noexcept { return conversation_ != nullptr; }

  std::optional<Failure> send(std::string_view text, const WaitOptions& options = {}) {
    return write(text, false, options);
  }
  std::optional<Failure> send_binary(std::string_view bytes, const WaitOptions& options = {}) {
    return write(bytes, true, options);
  }

  Received receive(const WaitOptions& options = {}) {
    if (!conversation_) return not_connected("a message");
    Received out = conversation_->receive(limit(options, config_.call_seconds));
    if (!out.is_message()) conversation_.reset();
    return out;
  }

  // Says goodbye and waits for the server's. The connection is closed whatever comes of that.
  std::optional<Failure> close(std::uint16_t code = 1000, std::string_view reason = {},
                               const WaitOptions& options = {}) {
    if (!conversation_) return std::nullopt;
    std::optional<Failure> out = conversation_->close(code, reason, limit(options, config_.close_seconds));
    conversation_.reset();
    return out;
  }

 private:
  static detail::Limit limit(const WaitOptions& options, double seconds) {
    return {options.seconds > 0 ? options.seconds : seconds, options.stop};
  }
  static Failure not_connected(const std::string& waited_for) {
    return {Failure::Kind::broken, waited_for, "there is no connection"};
  }

  std::optional<Failure> write(std::string_view bytes, bool binary, const WaitOptions& options) {
    if (!conversation_) return not_connected("the server to take a message");
    std::optional<Failure> failure = conversation_->send(bytes, binary, limit(options, config_.call_seconds));
    if (failure) conversation_.reset();
    return failure;
  }

  WebSocketConfig config_;
  detail::Address address_;
  std::string target_;
  std::unique_ptr<detail::Conversation> conversation_;
};

}  // namespace rlalgo::http
