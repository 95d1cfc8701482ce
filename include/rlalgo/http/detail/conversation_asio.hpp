// A WebSocket connection on Beast's synchronous stream over a socket with deadlines: framing, masking, fragments, UTF-8,
// limits and the closing handshake are Beast's. Its asynchronous operations would cost a multiple to compile.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/error.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <rlalgo/http/detail/conversation.hpp>
#include <rlalgo/http/detail/deadline_socket.hpp>
#include <rlalgo/http/detail/resolve.hpp>

namespace rlalgo::http::detail {

template <class Unit>
class BeastConversation final : public Conversation {
  using ErrorCode = boost::system::error_code;
  using Clock = std::chrono::steady_clock;
  using Kind = Failure::Kind;
  using Stream = boost::beast::websocket::stream<DeadlineSocket, false>;  // without compression
  using Error = boost::beast::websocket::error;

 public:
  explicit BeastConversation(ConversationTask task) : task_(std::move(task)), stream_(context_) {
    stream_.read_message_max(task_.message_limit);
    stream_.auto_fragment(false);
    stream_.set_option(boost::beast::websocket::stream_base::decorator([this](auto& request) {
      for (const Header& header : task_.headers) request.set(header.name, header.value);
    }));
  }

  Result connect(const Limit& limit) override {
    const auto deadline = deadline_of(limit);
    waiting_for_ = "an address of " + task_.address.host;
    const Resolved found = resolve(task_.address.host, deadline, limit.stop);
    if (!found.in_time)
      return limit.stop.stop_requested() ? Failure{Kind::cancelled, waiting_for_, given_up}
                                         : Failure{Kind::timeout, waiting_for_, time_is_up};
    if (found.addresses.empty()) return Failure{Kind::unreachable, waiting_for_, found.error};
    const DeadlineSocket::Call call(socket(), deadline, limit.stop);
    waiting_for_ = "a connection";
    ErrorCode error;
    for (const auto& address : found.addresses) {
      socket().connect({address, task_.address.port}, error);
      if (!error || ended(error)) break;
    }
    if (error) return ended(error) ? failure(error) : Failure{Kind::unreachable, waiting_for_, error.message()};
    waiting_for_ = "the answer to the handshake";
    std::string answer;
    socket().copy_to(&answer);
    stream_.handshake(task_.address.authority, task_.target, error);
    socket().copy_to(nullptr);
    if (error && error != Error::upgrade_declined) return failure(error);
    socket().watch_silence(task_.ping_seconds, task_.pong_seconds, [this] {
      ErrorCode ignored;  // a server that is gone is noticed by the read
      stream_.ping({}, ignored);
    });
    return parsed(answer);
  }

  std::optional<Failure> send(std::string_view bytes, bool binary, const Limit& limit) override {
    const DeadlineSocket::Call call(socket(), deadline_of(limit), limit.stop);
    waiting_for_ = "the server to take a message of " + std::to_string(bytes.size()) + " bytes";
    stream_.binary(binary);
    ErrorCode error;
    stream_.write(boost::asio::buffer(bytes.data(), bytes.size()), error);
    if (error) return failure(error);
    return std::nullopt;
  }

  Received receive(const Limit& limit) override {
    const DeadlineSocket::Call call(socket(), deadline_of(limit), limit.stop);
    waiting_for_ = "a message";
    boost::beast::flat_buffer buffer;
    ErrorCode error;
    stream_.read(buffer, error);
    if (error == Error::closed) {
      const auto& reason = stream_.reason();
      const bool none = reason.code == boost::beast::websocket::close_code::none;
      return WebSocketClosed{none ? std::uint16_t{1005} : reason.code,
                             std::string(reason.reason.data(), reason.reason.size())};
    }
    if (error) {
      if (buffer.size() > 0)
        waiting_for_ = "the rest of a message (" + std::to_string(buffer.size()) + " bytes so far)";
      return failure(error);
    }
    const auto data = buffer.data();
    return WebSocketMessage{std::string(static_cast<const char*>(data.data()), data.size()), stream_.got_binary()};
  }

  std::optional<Failure> close(std::uint16_t code, std::string_view reason, const Limit& limit) override {
    const DeadlineSocket::Call call(socket(), deadline_of(limit), limit.stop);
    waiting_for_ = "the server's goodbye";
    boost::beast::websocket::close_reason goodbye(code);
    goodbye.reason.assign(reason.data(), std::min<std::size_t>(reason.size(), goodbye.reason.max_size()));
    ErrorCode error;
    stream_.close(goodbye, error);
    // A server that ends the connection instead of answering is gone, as was asked.
    if (!error || error == boost::asio::error::eof || error == Error::closed) return std::nullopt;
    return failure(error);
  }

 private:
  static constexpr const char* given_up = "the call was given up";
  static constexpr const char* time_is_up = "time is up";

  static Clock::time_point deadline_of(const Limit& limit) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(std::min(limit.seconds, 1e9)));  // no overflow
  }
  static bool ended(const ErrorCode& error) {
    return error == boost::asio::error::timed_out || error == boost::asio::error::operation_aborted;
  }

  // The answer to the handshake, which Beast has read to its end but gives only where it is 101.
  static Response parsed(const std::string& bytes) {
    boost::beast::http::response_parser<boost::beast::http::string_body> parser;
    parser.eager(true);
    ErrorCode error;
    parser.put(boost::asio::buffer(bytes), error);
    if (!parser.is_done()) parser.put_eof(error);
    Response out{.status = static_cast<int>(parser.get().result_int()), .headers = {}, .body = {}};
    for (const auto& field : parser.get())
      out.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    out.body = std::move(parser.get().body());
    return out;
  }

  DeadlineSocket& socket() { return stream_.next_layer(); }

  Failure failure(const ErrorCode& error) {
    if (error == boost::asio::error::operation_aborted) return {Kind::cancelled, waiting_for_, given_up};
    if (error == boost::asio::error::timed_out)
      return {Kind::timeout, waiting_for_, socket().silent() ? "a ping had no answer" : time_is_up};
    namespace beast_http = boost::beast::http;
    if (error == Error::message_too_big)
      return {Kind::too_large, waiting_for_,
              "the message is larger than " + std::to_string(task_.message_limit) + " bytes"};
    if (error == beast_http::error::header_limit || error == beast_http::error::body_limit ||
        error == beast_http::error::buffer_overflow)
      return {Kind::too_large, waiting_for_, "the answer to the handshake is too large"};
    if (error == boost::asio::error::eof || error == beast_http::error::end_of_stream ||
        error == beast_http::error::partial_message)
      return {Kind::broken, waiting_for_, "the server closed the connection"};
    const bool system =
        error.category() == boost::system::system_category() || error.category() == boost::system::generic_category();
    return {system ? Kind::broken : Kind::malformed, waiting_for_,
            system ? error.message() : "what came is no WebSocket message"};
  }

  ConversationTask task_;
  boost::asio::io_context context_;
  Stream stream_;
  std::string waiting_for_;
};

template <class Unit>
std::unique_ptr<Conversation> Conversations<Unit>::make(ConversationTask task) {
  return std::make_unique<BeastConversation<Unit>>(std::move(task));
}

}  // namespace rlalgo::http::detail
