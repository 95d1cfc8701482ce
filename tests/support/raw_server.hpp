// A server of bytes inside the test program, for what an HTTP server would never do: each connection runs a script on
// its socket. Free port of 127.0.0.1; every wait ends when the server is destroyed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rlalgo::support {

// One connection, seen from the server.
class RawPeer {
 public:
  RawPeer(int descriptor, const std::atomic<bool>& stopping) : descriptor_(descriptor), stopping_(stopping) {}
  ~RawPeer() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // False when the client has gone, or the test is over.
  bool send(std::string_view bytes) {
    while (!bytes.empty() && !stopping_) {
      const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
      if (count < 0 && errno != EAGAIN) return false;
      if (count < 0) wait(POLLOUT);
    }
    return bytes.empty();
  }
  // One byte every `milliseconds`, until the client has gone.
  void drip(std::string_view bytes, int milliseconds) {
    for (const char byte : bytes)
      if (!pause(milliseconds) || !send(std::string_view(&byte, 1))) return;
  }
  // What the client sent next; empty when it closed.
  std::string receive() {
    while (!stopping_) {
      if (!wait(POLLIN)) continue;
      char bytes[65536];
      const ssize_t count = ::recv(descriptor_, bytes, sizeof bytes, 0);
      return count > 0 ? std::string(bytes, static_cast<std::size_t>(count)) : std::string();
    }
    return {};
  }
  // A request without a body.
  std::string receive_header() {
    std::string all;
    while (all.find("\r\n\r\n") == std::string::npos) {
      const std::string more = receive();
      if (more.empty()) break;
      all += more;
    }
    return all;
  }
  bool pause(int milliseconds) const {
    for (int i = 0; i < milliseconds && !stopping_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !stopping_;
  }
  // Ends the connection with RST.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(descriptor_, -1));
  }

 private:
  bool wait(short events) const {
    pollfd one{.fd = descriptor_, .events = events, .revents = 0};
    return ::poll(&one, 1, 10) > 0;
  }

  int descriptor_;
  const std::atomic<bool>& stopping_;
};

class RawServer {
 public:
  using Script = std::function<void(RawPeer& peer, int connection)>;  // connections are counted from 0

  // accept_after: milliseconds before the first connection is taken out of the backlog of one.
  explicit RawServer(Script script, int accept_after = 0) : script_(std::move(script)) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listening_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listening_, 16) != 0 ||
        ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no loopback port");
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this, accept_after] {
      for (int i = 0; i < accept_after && !stopping_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      accept();
    });
  }
  ~RawServer() {
    stopping_ = true;
    accepting_.join();
    for (std::thread& one : scripts_) one.join();
    ::close(listening_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  void accept() {
    while (!stopping_) {
      pollfd one{.fd = listening_, .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 10) <= 0) continue;
      const int descriptor = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor < 0) continue;
      scripts_.emplace_back([this, descriptor, number = connections_++] {
        RawPeer peer(descriptor, stopping_);
        script_(peer, number);
      });
    }
  }

  Script script_;
  int listening_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::vector<std::thread> scripts_;
  std::thread accepting_;
};

// A port of 127.0.0.1 on which nobody listens.
inline std::string nobody_url() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(descriptor);
  return "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

}  // namespace rlalgo::support
