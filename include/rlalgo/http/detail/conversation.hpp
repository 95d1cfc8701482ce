// What a WebSocket receives, and one connection behind functions whose bodies can be compiled apart: they hold
// Boost.Asio and Beast.
//
// By default every translation unit that includes this file compiles them; with RLALGO_COMPILED the library
// rlalgo::compiled_http holds them (core/compiled.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <rlalgo/http/detail/address.hpp>
#include <rlalgo/http/message.hpp>
#include <rlalgo/http/result.hpp>

namespace rlalgo::http {

struct WebSocketMessage {
  std::string data;
  bool binary = false;  // false: text
};

// The server's goodbye.
struct WebSocketClosed {
  std::uint16_t code = 0;  // RFC 6455, section 7.4: 1000 normal, 1011 the server failed …; 1005: it gave none
  std::string reason;
};

class Received {
 public:
  Received(WebSocketMessage message) : outcome_(std::move(message)) {}
  Received(WebSocketClosed closed) : outcome_(std::move(closed)) {}
  Received(Failure failure) : outcome_(std::move(failure)) {}

  [[nodiscard]] bool is_message() const noexcept { return std::holds_alternative<WebSocketMessage>(outcome_); }
  [[nodiscard]] bool is_closed() const noexcept { return std::holds_alternative<WebSocketClosed>(outcome_); }
  [[nodiscard]] const WebSocketMessage& message() const { return std::get<WebSocketMessage>(outcome_); }
  [[nodiscard]] WebSocketMessage& message() { return std::get<WebSocketMessage>(outcome_); }
  [[nodiscard]] const WebSocketClosed& closed() const { return std::get<WebSocketClosed>(outcome_); }
  [[nodiscard]] const Failure& failure() const { return std::get<Failure>(outcome_); }
  // "a message of 12 bytes", "closed by the server: 1011 out of memory", or what went wrong.
  [[nodiscard]] std::string text() const {
    if (is_message()) return "a message of " + std::to_string(message().data.size()) + " bytes";
    if (!is_closed()) return failure().text();
    return "closed by the server: " + std::to_string(closed().code) +
           (closed().reason.empty() ? "" : " " + closed().reason);
  }

 private:
  std::variant<WebSocketMessage, WebSocketClosed, Failure> outcome_;
};

namespace detail {

struct Limit {
  double seconds;
  std::stop_token stop;
};

// One connection. After a failure, a goodbye or close() it is of no further use.
class Conversation {
 public:
  virtual ~Conversation() = default;
  virtual Result connect(const Limit& limit) = 0;
  virtual std::optional<Failure> send(std::string_view bytes, bool binary, const Limit& limit) = 0;
  virtual Received receive(const Limit& limit) = 0;
  virtual std::optional<Failure> close(std::uint16_t code, std::string_view reason, const Limit& limit) = 0;
};

struct ConversationTask {
  Address address;
  std::string target;
  Headers headers;
  double ping_seconds, pong_seconds;
  std::size_t message_limit;
};

template <class Unit>
struct Conversations {
  static std::unique_ptr<Conversation> make(ConversationTask task);
};

}  // namespace detail

}  // namespace rlalgo::http

#ifndef RLALGO_COMPILED
#include <rlalgo/http/detail/conversation_asio.hpp>
#endif
