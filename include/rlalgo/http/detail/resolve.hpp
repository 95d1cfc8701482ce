// Addresses of a host name with a deadline: getaddrinfo has none, so it runs on a thread that is left behind when time
// is up. Digits, and "localhost", need no thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>

namespace rlalgo::http::detail {

struct Resolved {
  std::vector<boost::asio::ip::address> addresses;
  std::string error;    // why there are none
  bool in_time = true;  // false: the deadline passed, or the token was used
};

inline Resolved look_up(const std::string& host) {
  Resolved out;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    out.error = ::gai_strerror(error);
    return out;
  }
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(one->ai_addr);
      out.addresses.emplace_back(boost::asio::ip::address_v4(ntohl(v4->sin_addr.s_addr)));
    } else if (one->ai_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one->ai_addr);
      boost::asio::ip::address_v6::bytes_type bytes;
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = v6->sin6_addr.s6_addr[i];
      out.addresses.emplace_back(boost::asio::ip::address_v6(bytes, v6->sin6_scope_id));
    }
  }
  ::freeaddrinfo(list);
  if (out.addresses.empty()) out.error = "the name has no address";
  return out;
}

inline Resolved resolve(const std::string& host, std::chrono::steady_clock::time_point deadline,
                        const std::stop_token& stop) {
  boost::system::error_code error;
  if (const auto address = boost::asio::ip::make_address(host, error); !error) return {{address}, {}};
  if (host == "localhost")
    return {{boost::asio::ip::address_v4::loopback(), boost::asio::ip::address_v6::loopback()}, {}};
  struct Shared {
    std::mutex mutex;
    std::condition_variable_any done;
    bool finished = false;
    Resolved result;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, host] {
    Resolved result = look_up(host);
    const std::lock_guard lock(shared->mutex);
    shared->result = std::move(result);
    shared->finished = true;
    shared->done.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (shared->done.wait_until(lock, stop, deadline, [&] { return shared->finished; })) return std::move(shared->result);
  return {.addresses = {}, .error = "no answer", .in_time = false};
}

}  // namespace rlalgo::http::detail
