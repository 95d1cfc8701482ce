// A connection of the server: requests in, one after the other, and their answers out.
//
// Sockets are non-blocking and only waited for, so that an idle connection owns no buffer. What an answer has is sent by the
// thread that has it, as far as the socket takes it; the rest goes when the socket is writable. A connection is read while
// its request is being answered, which is how a client that goes away is noticed. Requests sent ahead of their answers
// are kept, up to one read, and taken in turn. A header is shown to ServerConfig::admit before its body is read.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <rlalgo/http/detail/header_end.hpp>
#include <rlalgo/http/detail/server_settings.hpp>
#include <rlalgo/http/exchange.hpp>

namespace rlalgo::http::detail {

// What connections share, and the number of them that are open.
struct Shared {
  ServerConfig config;
  Handler handler;
  boost::asio::io_context loop;
  std::atomic<bool> stopping = false;
  std::atomic<std::size_t> bodies = 0;  // bytes of those that are being read or answered, as their headers say
};

template <class Unit>
class Connection final : public AnswerPath, public std::enable_shared_from_this<Connection<Unit>> {
  using Tcp = boost::asio::ip::tcp;
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Clock = std::chrono::steady_clock;

 public:
  Connection(std::shared_ptr<Shared> shared, Tcp::socket socket, std::function<void(Connection*)> closed)
      : shared_(std::move(shared)),
        socket_(std::move(socket)),
        reading_(socket_.get_executor()),
        writing_(socket_.get_executor()),
        closed_(std::move(closed)) {}

  [[nodiscard]] auto executor() { return socket_.get_executor(); }

  // The functions from here to send() run on the connection's strand.
  void start() {
    ErrorCode ignored;
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    socket_.set_option(Tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    next_request();
  }

  // Closes at once, or after the answer that is under way.
  void stop(bool now) {
    if (now || state_ == State::idle) close();
  }
  // Makes room for another: closes where no whole header has come.
  void evict() {
    if (state_ == State::idle || state_ == State::header) close();
  }
  // Since when it waits for a header, on the steady clock; none: it does not. Any thread.
  [[nodiscard]] std::optional<Clock::duration> waits_since() const {
    const auto since = waits_since_.load();
    return since == busy ? std::nullopt : std::optional(Clock::duration(since));
  }

  bool send(std::string bytes, bool last, bool close) override try {
    const std::lock_guard lock(mutex_);
    if (gone_) return false;
    if (waiting_.size() + bytes.size() > shared_->config.output_limit && !last) {
      boost::asio::post(socket_.get_executor(), [self = this->shared_from_this()] { self->close(); });
      return false;
    }
    std::size_t sent = 0;
    if (!flushing_ && waiting_.empty() && bytes.size() <= at_once_size) sent = send_now(bytes);
    if (sent == bytes.size() && !last && !close) return true;
    waiting_.append(bytes, sent, std::string::npos);
    last_ = last_ || last;
    close_ = close_ || close;
    if (!posted_) boost::asio::post(socket_.get_executor(), [self = this->shared_from_this()] { self->write(); });
    posted_ = true;
    return true;
  } catch (const std::bad_alloc&) {  // there is no memory for the answer: nobody waits for it any longer
    boost::asio::post(socket_.get_executor(), [self = this->shared_from_this()] { self->close(); });
    return false;
  }

  void on_gone(std::function<void()> call) override {
    {
      const std::lock_guard lock(mutex_);
      if (!gone_) {
        on_gone_ = std::move(call);
        return;
      }
    }
    call();
  }

  [[nodiscard]] bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  enum class State { idle, header, body, answering, lingering, closed };

  void next_request() {
    if (shared_->stopping) return close();
    parser_.reset();
    forget();
    state_ = State::idle;
    waits_since_ = Clock::now().time_since_epoch().count();
    limit(shared_->config.idle_seconds);
    if (received_.empty()) return wait_to_read();
    parse();
  }

  // The state must have changed before the seconds are over.
  void limit(double seconds) {
    reading_.expires_after(duration(seconds));
    reading_.async_wait([self = this->shared_from_this()](ErrorCode error) {
      if (!error && self->reading_.expiry() <= Clock::now()) self->late();
    });
  }
  static Clock::duration duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  void late() {
    if (state_ == State::header || state_ == State::body) return refuse(408);
    if (state_ != State::answering) close();
  }

  void wait_to_read() {
    if (awaiting_ || state_ == State::closed) return;
    awaiting_ = true;
    socket_.async_wait(Tcp::socket::wait_read, [self = this->shared_from_this()](ErrorCode error) {
      self->awaiting_ = false;
      if (error) return self->close();
      try {
        self->read();
      } catch (const std::bad_alloc&) {  // no memory for what it sends
        self->close();
      }
    });
  }

  void read() {
    if (state_ == State::closed) return;
    if (state_ == State::answering && received_.size() >= read_size) return;  // read on when the answer is out
    char bytes[read_size];
    ErrorCode error;
    const std::size_t count = socket_.read_some(boost::asio::buffer(bytes), error);
    if (error == boost::asio::error::would_block) return wait_to_read();
    if (error) return close();
    if (state_ == State::lingering) return wait_to_read();
    received_.append(bytes, count);
    if (state_ != State::answering) parse();
    wait_to_read();
  }

  void parse() {
    if (!parser_) {
      parser_.emplace();
      parser_->eager(true);
      parser_->header_limit(static_cast<std::uint32_t>(
          std::min<std::size_t>(shared_->config.header_limit, std::numeric_limits<std::uint32_t>::max())));
      parser_->body_limit(shared_->config.body_limit);
      state_ = State::header;
      limit(shared_->config.header_seconds);
    }
    while (!received_.empty() && !parser_->is_done()) {
      ErrorCode error;
      const std::size_t used = parser_->put(
          boost::asio::buffer(received_.data(), bytes_for_parser(received_, parser_->is_header_done())), error);
      received_.erase(0, used);
      using E = boost::beast::http::error;
      if (error == E::need_more && received_.size() > shared_->config.header_limit) error = E::header_limit;
      if (error && error != E::need_more)
        return refuse(error == E::header_limit ? 431 : error == E::body_limit ? 413 : 400);
      if (parser_->is_header_done() && state_ == State::header) {
        state_ = State::body;
        waits_since_ = busy;
        limit(shared_->config.body_seconds);
        if (!admitted()) return;
        const auto expected = parser_->get().find(boost::beast::http::field::expect);
        if (expected != parser_->get().end() && !parser_->is_done())
          send("HTTP/1.1 100 Continue\r\n\r\n", false, false);
      }
      if (error || used == 0) break;
    }
    if (parser_->is_done()) handle();
  }

  // The request without its body.
  [[nodiscard]] Request head() const {
    const auto& message = parser_->get();
    Request request{.method = std::string(message.method_string()), .target = std::string(message.target())};
    for (const auto& field : message)
      request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    ErrorCode unknown;
    if (const auto peer = socket_.remote_endpoint(unknown); !unknown) request.peer = peer.address().to_string();
    return request;
  }

  // Counts the bytes of a body until its request is answered; false: there are too many. One body is always taken.
  [[nodiscard]] bool keep(std::size_t bytes) {
    const std::size_t others = shared_->bodies.fetch_add(bytes);
    kept_ = bytes;
    if (others == 0 || others + bytes <= shared_->config.bodies_limit) return true;
    forget();
    return false;
  }
  void forget() { shared_->bodies -= std::exchange(kept_, 0); }

  // False: the request has been answered, and what is left of it is not read.
  [[nodiscard]] bool admitted() {
    const auto length = parser_->content_length();
    Request request = head();
    Admission admission;
    if (shared_->config.admit)
      admission = shared_->config.admit(request, length ? std::optional<std::uint64_t>(*length) : std::nullopt);
    const std::size_t most = std::min(admission.body_limit, shared_->config.body_limit);
    const bool body = length ? *length > 0 : parser_->chunked();
    if (!admission.refusal && body && !keep(length ? static_cast<std::size_t>(*length) : most))
      admission.refusal = Response{.status = 503,
                                   .headers = {{"Retry-After", "1"}},
                                   .body = "the bodies of others take the memory for bodies\n"};
    if (!admission.refusal) {
      parser_->body_limit(most);
      return true;
    }
    state_ = State::answering;
    reading_.cancel();
    const bool whole = parser_->is_done() || length.value_or(1) == 0;
    const bool keep_alive = whole && parser_->keep_alive() && !shared_->stopping;
    const bool http_10 = parser_->get().version() < 11;
    if (!keep_alive) std::string().swap(received_);
    parser_.reset();
    Exchange(std::move(request), this->shared_from_this(), keep_alive, http_10).respond(*admission.refusal);
    return false;
  }

  void handle() {
    state_ = State::answering;
    reading_.cancel();
    auto& message = parser_->get();
    Request request = head();
    request.body = std::move(message.body());
    const bool keep_alive = parser_->keep_alive() && !shared_->stopping;
    const auto exchange =
        std::make_shared<Exchange>(std::move(request), this->shared_from_this(), keep_alive, message.version() < 11);
    parser_.reset();
    std::string thrown;
    try {
      shared_->handler(exchange);
      return;
    } catch (const std::exception& error) {
      thrown = error.what();
    } catch (...) {
      thrown = "no std::exception";
    }
    if (shared_->config.tell) shared_->config.tell(exchange->request().target + ": " + thrown);
    exchange->respond({.status = 500, .body = "internal error\n"});
  }

  // Answers what is no request, and ends the connection.
  void refuse(int status) {
    state_ = State::answering;
    reading_.cancel();
    received_.clear();
    parser_.reset();
    send(head_of(status, {}) + "Connection: close\r\nContent-Length: 0\r\n\r\n", true, true);
  }

  void write() {
    if (state_ == State::closed) return;
    {
      const std::lock_guard lock(mutex_);
      posted_ = false;
      if (sending_.size() == sent_) {
        sending_.clear();
        sent_ = 0;
        std::swap(sending_, waiting_);
      }
      flushing_ = sent_ < sending_.size();
    }
    ErrorCode error;
    const std::size_t before = sent_;
    while (!error && sent_ < sending_.size())
      sent_ += socket_.write_some(boost::asio::buffer(sending_.data() + sent_, sending_.size() - sent_), error);
    if (error && error != boost::asio::error::would_block) return this->close();
    if (sent_ < sending_.size()) {
      if (sent_ > before || !write_awaited_) limit_write();
      if (!write_awaited_) {
        write_awaited_ = true;
        socket_.async_wait(Tcp::socket::wait_write, [self = this->shared_from_this()](ErrorCode failed) {
          self->write_awaited_ = false;
          if (failed) return self->close();
          self->write();
        });
      }
      return;
    }
    writing_.cancel();
    std::unique_lock lock(mutex_);
    if (!waiting_.empty()) {
      lock.unlock();
      return write();
    }
    flushing_ = false;
    if (!last_) return;
    const bool close = std::exchange(close_, false);
    last_ = false;
    const std::function<void()> dropped = std::exchange(on_gone_, nullptr);  // destroyed without the lock
    lock.unlock();
    std::string().swap(sending_);
    sent_ = 0;
    if (close) return linger();
    if (state_ == State::answering) next_request();
    wait_to_read();
  }

  // What the socket takes at once, on whatever thread has it: a token is on its way before the next one is begun, and waits for no
  // other thread to run. Under the mutex, and only while nothing is under way on the strand; a closed socket is gone_ before.
  std::size_t send_now(const std::string& bytes) {
    const auto count = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return count > 0 ? static_cast<std::size_t>(count) : 0;  // what fails fails again on the strand, which closes
  }

  // The client must take a byte before the seconds are over.
  void limit_write() {
    writing_.expires_after(duration(shared_->config.write_seconds));
    writing_.async_wait([self = this->shared_from_this()](ErrorCode error) {
      if (!error && self->writing_.expiry() <= Clock::now()) self->close();
    });
  }

  // Lets the client read the answer: closing with bytes unread would reset the connection.
  void linger() {
    ErrorCode error;
    socket_.shutdown(Tcp::socket::shutdown_send, error);
    if (error) return close();
    state_ = State::lingering;
    limit(linger_seconds);
    wait_to_read();
  }

  void close() {
    if (state_ == State::closed) return;
    state_ = State::closed;
    forget();
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      call = std::exchange(on_gone_, nullptr);
      waiting_.clear();
    }
    reading_.cancel();
    writing_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
    if (call) call();
    closed_(this);
  }

  static constexpr std::size_t read_size = std::size_t{16} << 10;
  static constexpr std::size_t at_once_size = std::size_t{64} << 10;  // bytes that a sender may spend its time on
  static constexpr double linger_seconds = 2.0;

  const std::shared_ptr<Shared> shared_;
  Tcp::socket socket_;
  boost::asio::steady_timer reading_, writing_;
  std::function<void(Connection*)> closed_;
  State state_ = State::idle;
  static constexpr Clock::rep busy = std::numeric_limits<Clock::rep>::max();
  std::atomic<Clock::rep> waits_since_ = busy;
  std::optional<Parser> parser_;
  std::string received_, sending_;
  std::size_t sent_ = 0, kept_ = 0;
  bool awaiting_ = false, write_awaited_ = false;
  mutable std::mutex mutex_;  // of what follows: exchanges answer from any thread
  std::string waiting_;
  bool last_ = false, close_ = false, posted_ = false, gone_ = false;
  bool flushing_ = false;  // the strand has bytes that are to go before what waits
  std::function<void()> on_gone_;
};

}  // namespace rlalgo::http::detail
