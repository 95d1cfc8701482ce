// One attempt on Asio's sockets, read by Beast's parser: an event loop of its own, which ends when the answer is
// complete, the attempt has failed, the deadline has passed or the caller gives up.
//
// Sockets are non-blocking and only waited for by Asio, so that no buffer outlives a step. The answer is read while the
// request is still being sent: a server may refuse a body before it has it all.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <rlalgo/core/version.hpp>
#include <rlalgo/http/detail/attempt.hpp>
#include <rlalgo/http/detail/header_end.hpp>
#include <rlalgo/http/detail/resolve.hpp>

namespace rlalgo::http::detail {

template <class Unit>
class AsioAttempt {
  using Tcp = boost::asio::ip::tcp;
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;
  using Kind = Failure::Kind;

 public:
  AsioAttempt(const AttemptTask& task, KeptConnections& kept)
      : task_(task), kept_(kept), socket_(loop_), deadline_(loop_), connecting_(loop_), noting_(loop_) {}

  Result run() {
    const Request& request = task_.request;
    if (!is_plain(request.target) || !request.target.starts_with('/') || !is_plain(request.method))
      return Failure{Kind::malformed, "a request that can be sent", "the target has characters of no URL"};
    head_ = head_of(request);
    renew_parser();
    deadline_.expires_at(task_.deadline);
    deadline_.async_wait([this](ErrorCode error) {
      if (!error) finish(timed_out());
    });
    const std::stop_callback stopping(task_.stop,
                                      [this] { boost::asio::post(loop_, [this] { finish(cancelled()); }); });
    boost::asio::post(loop_, [this] { start(); });
    if (task_.waiting) note_later();
    loop_.run();
    return std::move(*outcome_);
  }

 private:
  void note_later() {
    noting_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(task_.waiting_seconds)));
    noting_.async_wait([this](ErrorCode error) {
      if (error || outcome_) return;
      task_.waiting();
      note_later();
    });
  }

  void start() {
    if (outcome_ || use_kept_connection()) return;
    waiting_for_ = "the address of " + task_.address.host;
    Resolved found = resolve(task_.address.host, task_.deadline, task_.stop);
    if (!found.in_time) return finish(task_.stop.stop_requested() ? cancelled() : timed_out());
    if (found.addresses.empty()) return finish(Failure{Kind::unreachable, waiting_for_, found.error});
    addresses_ = std::move(found.addresses);
    waiting_for_ = "a connection";
    connect(0);
  }

  std::string head_of(const Request& request) const {
    std::string out = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + task_.address.authority +
                      "\r\nUser-Agent: rlalgo/" + std::string(version) + "\r\n";
    if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD"))
      out += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
    for (const Header& header : request.headers) out += one_line(header.name) + ": " + one_line(header.value) + "\r\n";
    return out + "\r\n";
  }
  static std::string one_line(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
    return text;
  }

  void renew_parser() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<std::uint32_t>(
        std::min<std::size_t>(task_.header_limit, std::numeric_limits<std::uint32_t>::max())));
    if (task_.on_body)
      parser_->body_limit(
          std::numeric_limits<std::uint64_t>::max());  // of none, Beast 1.74 refuses every Content-Length
    else
      parser_->body_limit(task_.body_limit);
    parser_->skip(task_.request.method == "HEAD");
  }

  // Takes a connection of an earlier call, unless the server has closed it or says something unasked.
  bool use_kept_connection() {
    while (const auto one = kept_.take()) {
      ErrorCode error;
      ipv6_ = one->ipv6;
      socket_.assign(ipv6_ ? Tcp::v6() : Tcp::v4(), one->descriptor, error);
      char byte = 0;
      if (!error) socket_.non_blocking(true, error);
      if (!error) {
        socket_.receive(boost::asio::buffer(&byte, 1), Tcp::socket::message_peek, error);
        if (error == boost::asio::error::would_block) {
          begin();
          return true;
        }
      }
      socket_.close(error);
    }
    return false;
  }

  void connect(std::size_t index) {
    ErrorCode error;
    const Tcp::endpoint endpoint(addresses_[index], task_.address.port);
    ipv6_ = addresses_[index].is_v6();
    const auto next = [this, index](const std::string& reason) {
      ErrorCode ignored;
      socket_.close(ignored);
      if (index + 1 < addresses_.size()) return connect(index + 1);
      finish(Failure{Kind::unreachable, waiting_for_, reason});
    };
    socket_.open(endpoint.protocol(), error);
    if (error) return next(error.message());
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    late_ = false;
    connecting_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(task_.connect_seconds)));
    connecting_.async_wait([this](ErrorCode ended) {
      if (ended) return;
      late_ = true;
      ErrorCode ignored;
      socket_.close(ignored);
    });
    socket_.async_connect(endpoint, [this, next](ErrorCode failed) {
      if (outcome_) return;
      connecting_.cancel();
      if (late_) return next("no connection in time");
      if (failed) return next(failed.message());
      ErrorCode ignored;
      socket_.set_option(Tcp::no_delay(true), ignored);
      socket_.non_blocking(true, ignored);
      begin();
    });
  }

  void begin() {
    waiting_for_ = "an answer";
    send();
    receive();
  }

  void send() {
    ErrorCode error;
    const std::string& body = task_.request.body;
    while (!error && sent_ < head_.size() + body.size()) {
      const std::size_t in_body = sent_ > head_.size() ? sent_ - head_.size() : 0;
      const std::size_t in_head = std::min(sent_, head_.size());
      const std::array<boost::asio::const_buffer, 2> rest = {
          boost::asio::buffer(head_.data() + in_head, head_.size() - in_head),
          boost::asio::buffer(body.data() + in_body, body.size() - in_body)};
      sent_ += socket_.write_some(rest, error);
    }
    // What breaks while sending breaks the answer, too, unless that has come before.
    if (error == boost::asio::error::would_block)
      socket_.async_wait(Tcp::socket::wait_write, [this](ErrorCode failed) {
        if (!failed && !outcome_) send();
      });
  }

  void receive() {
    while (!outcome_) {
      const std::size_t before = received_.size();
      received_.resize(before + read_size);
      ErrorCode error;
      const std::size_t count = socket_.read_some(boost::asio::buffer(received_.data() + before, read_size), error);
      received_.resize(before + count);
      bytes_ += count;
      if (error == boost::asio::error::would_block) {
        socket_.async_wait(Tcp::socket::wait_read, [this](ErrorCode failed) {
          if (!failed && !outcome_) receive();
        });
        return;
      }
      if (error == boost::asio::error::eof) return at_end();
      if (error) return finish(Failure{Kind::broken, progress(), error.message()});
      parse();
      // A server that never pauses must not keep the deadline and the caller from being heard.
      if (!outcome_) return boost::asio::post(loop_, [this] { receive(); });
    }
  }

  void at_end() {
    ErrorCode error = boost::beast::http::error::partial_message;
    if (parser_->got_some()) parser_->put_eof(error);
    if (!error && parser_->is_done()) return complete(false);
    finish(Failure{Kind::broken, progress(), "the server closed the connection"});
  }

  void parse() {
    while (!received_.empty()) {
      ErrorCode error;
      const std::size_t used = parser_->put(
          boost::asio::buffer(received_.data(), bytes_for_parser(received_, parser_->is_header_done())), error);
      received_.erase(0, used);
      if (!error || error == boost::beast::http::error::need_more) deliver();
      if (outcome_) return;
      if (error == boost::beast::http::error::need_more) {
        // What is not used by then is a header, or a line between chunks.
        if (received_.size() <= task_.header_limit) return;
        error = boost::beast::http::error::header_limit;
      }
      if (error == boost::beast::http::error::header_limit)
        return finish(Failure{Kind::too_large, progress(),
                              "the header is larger than " + std::to_string(task_.header_limit) + " bytes"});
      if (error == boost::beast::http::error::body_limit) return finish(too_large());
      if (error)
        return finish(Failure{Kind::malformed, progress(),
                              "what came is no HTTP answer (is it another program's port, or https?)"});
      if (parser_->is_done()) {
        const unsigned status = parser_->get().result_int();
        if (status < 100 || status >= 200) return complete(sent_ == head_.size() + task_.request.body.size());
        renew_parser();  // 100 Continue and its kind: the answer follows
      } else if (used == 0) {
        return;
      }
    }
  }

  // Hands over the part of a 2xx body that has come.
  void deliver() {
    if (!task_.on_body || !parser_->is_header_done()) return;
    std::string& body = parser_->get().body();
    if (parser_->get().result_int() / 100 != 2) {
      if (body.size() > task_.body_limit) finish(too_large());
      return;
    }
    if (body.empty()) return;
    const std::string part = std::exchange(body, {});
    task_.on_body(part);
  }

  void complete(bool whole_request_sent) {
    Response response;
    auto& message = parser_->get();
    response.status = static_cast<int>(message.result_int());
    for (const auto& field : message)
      response.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    response.body = std::move(message.body());
    keep_ = whole_request_sent && parser_->keep_alive() && received_.empty();
    finish(std::move(response));
  }

  [[nodiscard]] std::string progress() const {
    const std::size_t size = head_.size() + task_.request.body.size();
    if (bytes_ > 0) return "the rest of the answer (" + std::to_string(bytes_) + " bytes so far)";
    if (waiting_for_ == "an answer" && sent_ < size)
      return "the server to take the request (" + std::to_string(sent_) + " of " + std::to_string(size) + " bytes)";
    return waiting_for_;
  }
  [[nodiscard]] Failure too_large() const {
    return {Kind::too_large, progress(), "the body is larger than " + std::to_string(task_.body_limit) + " bytes"};
  }
  [[nodiscard]] Failure timed_out() const { return {Kind::timeout, progress(), "time is up"}; }
  [[nodiscard]] Failure cancelled() const { return {Kind::cancelled, progress(), "the call was given up"}; }

  void finish(Result result) {
    if (outcome_) return;
    outcome_ = std::move(result);
    deadline_.cancel();
    connecting_.cancel();
    noting_.cancel();
    ErrorCode ignored;
    socket_.cancel(ignored);
    if (keep_) {
      const int descriptor = socket_.release(ignored);
      if (!ignored) kept_.keep({descriptor, ipv6_});
    } else {
      socket_.close(ignored);
    }
  }

  static constexpr std::size_t read_size = std::size_t{64} << 10;

  const AttemptTask& task_;
  KeptConnections& kept_;
  boost::asio::io_context loop_{1};
  Tcp::socket socket_;
  boost::asio::steady_timer deadline_, connecting_, noting_;
  std::vector<boost::asio::ip::address> addresses_;
  std::string head_, received_;
  std::optional<Parser> parser_;
  std::optional<Result> outcome_;
  std::string waiting_for_;
  std::size_t sent_ = 0, bytes_ = 0;
  bool ipv6_ = false, late_ = false, keep_ = false;
};

template <class Unit>
Result Caller<Unit>::attempt(const AttemptTask& task, KeptConnections& kept) {
  return AsioAttempt<Unit>(task, kept).run();
}

}  // namespace rlalgo::http::detail
