// A client of bytes inside the test program. Its waits end after a few seconds.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace rlalgo::support {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("no connection");
  }
  ~RawClient() { ::close(descriptor_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  // Exactly `size` bytes, or fewer when the server closes or a few seconds pass.
  std::string receive(std::size_t size) {
    std::string out(size, '\0');
    std::size_t have = 0;
    while (have < size) {
      const ssize_t count = ::recv(descriptor_, out.data() + have, size - have, 0);
      if (count <= 0) break;
      have += static_cast<std::size_t>(count);
    }
    out.resize(have);
    return out;
  }
  // Everything up to the end of the connection.
  std::string receive_all() { return receive(std::size_t{1} << 20); }

 private:
  int descriptor_;
};

}  // namespace rlalgo::support
