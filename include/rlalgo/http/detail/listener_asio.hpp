// The server on Asio: threads run one event loop, every connection (connection_asio.hpp) is a strand of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/detail/connection_asio.hpp>
#include <rlalgo/http/detail/listener.hpp>

namespace rlalgo::http::detail {

template <class Unit>
class AsioListener final : public ListenerBase {
  using Tcp = boost::asio::ip::tcp;
  using ErrorCode = boost::system::error_code;

 public:
  AsioListener(ServerConfig config, Handler handler)
      : shared_(std::make_shared<Shared>()),
        running_(shared_->loop.get_executor()),
        acceptor_(shared_->loop),
        pause_(shared_->loop) {
    shared_->config = std::move(config);
    shared_->handler = std::move(handler);
    const ServerConfig& c = shared_->config;
    most_ = c.connections;
    // Some descriptors stay for files, adapters and other programs' sockets.
    if (rlimit files{}; ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
      most_ = std::min<std::size_t>(most_, std::max<std::size_t>(files.rlim_cur * 7 / 8, 16));
    ErrorCode error;
    const Tcp::endpoint endpoint(boost::asio::ip::make_address(c.host, error), c.port);
    if (!error) acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
    if (!error) acceptor_.non_blocking(true, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (error)
      core::raise("http", 8,
                  {.what = "a server cannot listen",
                   .found = error.message(),
                   .where = c.host + ":" + std::to_string(c.port),
                   .remedy = "is another program on that port, and the address one of this machine?"});
    ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
    wait_to_accept();
    for (int i = 0; i < std::max(1, c.threads); ++i) threads_.emplace_back([this] { run(); });
  }
  ~AsioListener() override { stop(0.0); }

  [[nodiscard]] std::uint16_t port() const override { return port_; }
  [[nodiscard]] std::size_t connections() const override {
    const std::lock_guard lock(mutex_);
    return open_.size();
  }

  void stop(double seconds) override {
    if (shared_->stopping.exchange(true)) return;
    boost::asio::post(shared_->loop, [this] {
      const std::lock_guard lock(accepting_);
      ErrorCode ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    stop_connections(false);
    {
      std::unique_lock lock(mutex_);
      none_open_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return open_.empty(); });
    }
    stop_connections(true);
    running_.reset();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void run() {
    for (;;) try {
        shared_->loop.run();  // returns when stop() has posted all and the acceptor and every connection are closed
        return;
      } catch (const std::exception& error) {
        if (shared_->config.tell) shared_->config.tell(error.what());
      }
  }

  void wait_to_accept() {
    acceptor_.async_wait(Tcp::acceptor::wait_read, [this](ErrorCode error) {
      if (!error) accept();
    });
  }

  void accept() {
    const std::lock_guard lock(accepting_);
    if (shared_->stopping) return;
    for (;;) {
      Tcp::socket socket(boost::asio::make_strand(shared_->loop));
      ErrorCode error;
      acceptor_.accept(socket, error);
      if (error == boost::asio::error::would_block || error == boost::asio::error::connection_aborted) break;
      if (error) {  // no descriptor is free: one may be in a moment
        evict_one();
        pause_.expires_after(std::chrono::milliseconds(50));
        pause_.async_wait([this](ErrorCode stopped) {
          if (!stopped) accept();
        });
        return;
      }
      if (connections() >= most_ && !evict_one()) continue;
      add(std::move(socket));
    }
    wait_to_accept();
  }

  // Closes the connection that has waited longest for a header, as keep-alive ones do. False: none waits.
  bool evict_one() {
    std::shared_ptr<Connection<Unit>> oldest;
    {
      const std::lock_guard lock(mutex_);
      std::optional<std::chrono::steady_clock::duration> since;
      for (const auto& [_, connection] : open_) {
        auto held = connection.lock();
        const auto waits = held == nullptr ? std::nullopt : held->waits_since();
        if (!waits || (since && *waits >= *since)) continue;
        since = waits;
        oldest = std::move(held);
      }
    }
    if (oldest == nullptr) return false;
    boost::asio::post(oldest->executor(), [oldest] { oldest->evict(); });
    return true;
  }

  void add(Tcp::socket socket) {
    const auto executor = socket.get_executor();
    const auto connection = std::make_shared<Connection<Unit>>(shared_, std::move(socket), [this](auto* closed) {
      const std::lock_guard lock(mutex_);
      open_.erase(closed);
      if (open_.empty()) none_open_.notify_all();
    });
    {
      const std::lock_guard lock(mutex_);
      open_.emplace(connection.get(), connection);
    }
    boost::asio::post(executor, [connection] { connection->start(); });
  }

  void stop_connections(bool now) {
    std::vector<std::shared_ptr<Connection<Unit>>> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [_, connection] : open_)
        if (auto held = connection.lock()) all.push_back(std::move(held));
    }
    for (const auto& connection : all)
      boost::asio::post(connection->executor(), [connection, now] { connection->stop(now); });
  }

  const std::shared_ptr<Shared> shared_;
  // What is posted runs: a connection in a handler that never ran would own the loop that holds the handler.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> running_;
  Tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::uint16_t port_ = 0;
  std::size_t most_ = 0;  // connections
  std::mutex accepting_;
  mutable std::mutex mutex_;
  std::condition_variable none_open_;
  std::unordered_map<Connection<Unit>*, std::weak_ptr<Connection<Unit>>> open_;
  std::vector<std::thread> threads_;
};

template <class Unit>
std::unique_ptr<ListenerBase> Listener<Unit>::start(ServerConfig config, Handler handler) {
  return std::make_unique<AsioListener<Unit>>(std::move(config), std::move(handler));
}

}  // namespace rlalgo::http::detail
