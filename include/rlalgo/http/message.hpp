// Requests and responses of HTTP/1.1 as plain values.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::http {

struct Header {
  std::string name;
  std::string value;
};
using Headers = std::vector<Header>;

// Names of headers are compared without regard to case.
[[nodiscard]] inline bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

// The value of the first header of that name, or nullptr.
[[nodiscard]] inline const std::string* find_header(const Headers& headers, std::string_view name) {
  for (const Header& header : headers)
    if (same_name(header.name, name)) return &header.value;
  return nullptr;
}

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query, as they travel
  Headers headers = {};      // without Host, Content-Length and Connection, which the room writes itself
  std::string body = {};
  std::string peer = {};  // at a server: the address of who asks
};

struct Response {
  int status = 200;
  Headers headers = {};
  std::string body = {};
  [[nodiscard]] bool ok() const noexcept { return status >= 200 && status < 300; }
};

// One event of a text/event-stream; `data` is one line.
[[nodiscard]] inline std::string server_sent_event(std::string_view data) {
  return "data: " + std::string(data) + "\n\n";
}

}  // namespace rlalgo::http
