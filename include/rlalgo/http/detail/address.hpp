// The parts of an address http://HOST[:PORT][/PATH].
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rlalgo::http::detail {

struct Address {
  std::string host;  // a name, or digits of IPv4, or of IPv6 without its brackets
  std::uint16_t port = 80;
  std::string authority;  // as it stands in the Host header
  std::string path;       // before every target; no '/' at its end
};

// Whether a target or a host may stand in the first lines of a request: printable ASCII without spaces.
[[nodiscard]] inline bool is_plain(std::string_view text) {
  for (const char c : text)
    if (c <= ' ' || c > '~') return false;
  return true;
}

[[nodiscard]] inline std::optional<Address> parse_address(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  while (!text.empty() && text.back() == '/') text.remove_suffix(1);
  if (!text.starts_with(scheme) || !is_plain(text)) return std::nullopt;
  text.remove_prefix(scheme.size());
  Address out;
  const std::size_t slash = text.find('/');
  std::string_view authority = text.substr(0, slash);
  if (slash != std::string_view::npos) out.path = text.substr(slash);
  out.authority = authority;
  if (authority.find_first_of("@?#") != std::string_view::npos || out.path.find_first_of("?#") != std::string::npos)
    return std::nullopt;
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    out.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const std::size_t colon = authority.find(':');
    out.host = authority.substr(0, colon);
    port = colon == std::string_view::npos ? std::string_view() : authority.substr(colon);
  }
  if (out.host.empty()) return std::nullopt;
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), out.port);
    if (port[0] != ':' || error != std::errc() || end != port.data() + port.size() || out.port == 0)
      return std::nullopt;
  }
  return out;
}

}  // namespace rlalgo::http::detail
