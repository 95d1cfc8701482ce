// A socket whose blocking reads and writes end at a deadline, when the caller gives up, or when the other side stays
// silent: the stream below Beast's synchronous operations.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/system/system_error.hpp>

namespace rlalgo::http::detail {

class DeadlineSocket {
 public:
  using ErrorCode = boost::system::error_code;
  using Clock = std::chrono::steady_clock;
  using executor_type = boost::asio::io_context::executor_type;

  explicit DeadlineSocket(boost::asio::io_context& context)
      : context_(context), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~DeadlineSocket() {
    close();
    if (wake_ >= 0) ::close(wake_);
  }
  DeadlineSocket(const DeadlineSocket&) = delete;
  DeadlineSocket& operator=(const DeadlineSocket&) = delete;

  executor_type get_executor() noexcept { return context_.get_executor(); }

  // The time and the token of the calls that follow, until the guard goes.
  class Call {
   public:
    Call(DeadlineSocket& socket, Clock::time_point deadline, std::stop_token stop)
        : socket_(socket), callback_(stop, [&socket] { socket.wake(); }) {
      socket_.deadline_ = deadline;
      socket_.stop_ = std::move(stop);
    }
    ~Call() { socket_.stop_ = {}; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    DeadlineSocket& socket_;
    std::stop_callback<std::function<void()>> callback_;
  };

  // Called after so many seconds without a byte while reading; further pong_seconds of silence are an error.
  void watch_silence(double ping_seconds, double pong_seconds, std::function<void()> ping) {
    ping_seconds_ = ping_seconds;
    pong_seconds_ = pong_seconds;
    ping_ = std::move(ping);
  }

  void connect(const boost::asio::ip::tcp::endpoint& endpoint, ErrorCode& error) {
    close();
    descriptor_ = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor_ < 0) return void(error = last());
    const int on = 1;
    ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    error = {};
    if (::connect(descriptor_, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0) return;
    if (errno != EINPROGRESS) return void(error = last());
    wait(POLLOUT, deadline_, error);
    if (error) return;
    int failure = 0;
    socklen_t size = sizeof failure;
    ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) error = {failure, boost::system::system_category()};
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, ErrorCode& error) {
    const auto buffer = first<boost::asio::mutable_buffer>(buffers);
    error = {};
    if (buffer.size() == 0) return 0;
    auto heard = Clock::now();
    bool pinged = false;
    while (true) {
      // Time first: a server that never pauses must not keep the deadline and the caller from being heard.
      if (ended(error)) return 0;
      const ssize_t count = ::recv(descriptor_, buffer.data(), buffer.size(), 0);
      if (count > 0) {
        if (copy_ != nullptr) copy_->append(static_cast<const char*>(buffer.data()), static_cast<std::size_t>(count));
        return static_cast<std::size_t>(count);
      }
      if (count == 0) return error = boost::asio::error::eof, 0;
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return error = last(), 0;
      auto until = deadline_;
      const bool watched = ping_ && ping_seconds_ > 0;
      if (watched) until = std::min(until, heard + seconds(pinged ? pong_seconds_ : ping_seconds_));
      if (wait(POLLIN, until, error) || until == deadline_ || error != boost::asio::error::timed_out) {
        if (error) return 0;
        continue;
      }
      if (pinged) return silent_ = true, 0;  // error: timed_out
      error = {};
      pinged = true;
      heard = Clock::now();
      ping_();
    }
  }

  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, ErrorCode& error) {
    const auto buffer = first<boost::asio::const_buffer>(buffers);
    error = {};
    if (buffer.size() == 0) return 0;
    while (true) {
      if (ended(error)) return 0;
      const ssize_t count = ::send(descriptor_, buffer.data(), buffer.size(), MSG_NOSIGNAL);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return error = last(), 0;
      if (!wait(POLLOUT, deadline_, error)) return 0;
    }
  }

  // Beast's concepts ask for them.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return thrown([&](ErrorCode& error) { return read_some(buffers, error); });
  }
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return thrown([&](ErrorCode& error) { return write_some(buffers, error); });
  }

  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

  [[nodiscard]] bool stopped() const { return stop_.stop_requested(); }
  [[nodiscard]] bool silent() const noexcept { return silent_; }  // a ping had no answer
  // What is read from here on is added to `text`; null: no longer.
  void copy_to(std::string* text) noexcept { copy_ = text; }

 private:
  static std::chrono::nanoseconds seconds(double value) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(std::min(value, 1e9)));
  }
  static ErrorCode last() { return {errno, boost::system::system_category()}; }

  template <class Buffer, class Buffers>
  static Buffer first(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto it = boost::asio::buffer_sequence_begin(buffers); it != end; ++it)
      if (const Buffer one(*it); one.size() > 0) return one;
    return {};
  }

  template <class Call>
  static std::size_t thrown(Call call) {
    ErrorCode error;
    const std::size_t count = call(error);
    if (error) throw boost::system::system_error(error);
    return count;
  }

  void wake() const {
    const std::uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
  }

  bool ended(ErrorCode& error) const {
    if (stop_.stop_requested())
      error = boost::asio::error::operation_aborted;
    else if (Clock::now() >= deadline_)
      error = boost::asio::error::timed_out;
    return static_cast<bool>(error);
  }

  // Whether the socket is ready; otherwise `error` says why not.
  bool wait(short events, Clock::time_point until, ErrorCode& error) const {
    while (true) {
      if (stop_.stop_requested()) return error = boost::asio::error::operation_aborted, false;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return error = boost::asio::error::timed_out, false;
      pollfd watched[2] = {{.fd = descriptor_, .events = events, .revents = 0},
                           {.fd = wake_, .events = POLLIN, .revents = 0}};
      const int ready = ::poll(watched, 2, static_cast<int>(std::min<std::int64_t>(left, 1'000'000)));
      if (ready < 0 && errno != EINTR) return error = last(), false;
      if (watched[1].revents != 0) {  // of this call, or of one before
        std::uint64_t count = 0;
        (void)!::read(wake_, &count, sizeof count);
      }
      if (ready > 0 && watched[0].revents != 0) return error = {}, true;
    }
  }

  boost::asio::io_context& context_;
  int descriptor_ = -1, wake_ = -1;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::stop_token stop_;
  double ping_seconds_ = 0, pong_seconds_ = 0;
  std::function<void()> ping_;
  bool silent_ = false;
  std::string* copy_ = nullptr;
};

// Beast has nothing more to say: no wait for the other side's end of the connection.
inline void teardown(boost::beast::role_type, DeadlineSocket& socket, boost::system::error_code& error) {
  error = {};
  socket.close();
}

}  // namespace rlalgo::http::detail
