// One request over http or https whose answer may be large: its body goes to a sink as it comes.
//
// A transfer takes as long as it makes progress: a connection and every byte have a limit each, and in every window of
// `window_seconds` there must come `window_bytes`, so that a server which drips is given up. Redirects are answers like any
// other (resolve_location). https verifies the server's certificate and name, by the system's OpenSSL (libssl.so.3, loaded
// when the first https address is asked for) and the authorities that it knows: SSL_CERT_FILE and SSL_CERT_DIR name others.
// $HTTPS_PROXY, $HTTP_PROXY, $ALL_PROXY (http://HOST:PORT) and $NO_PROXY, in either case of letters, are followed.
//
// Errors:
//   [rlalgo.http.10] an address is no http or https URL (exit 2)
//   [rlalgo.http.11] https is asked for, and OpenSSL does not load or has no authorities
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include <rlalgo/http/message.hpp>
#include <rlalgo/http/result.hpp>

namespace rlalgo::http {

struct TransferRequest {
  std::string method = "GET";
  std::string url = {};
  Headers headers = {};
  double connect_seconds = 15.0;                     // to one address, with the handshake of TLS
  double idle_seconds = 30.0;                        // without a byte
  double window_seconds = 60.0;                      // in which …
  std::uint64_t window_bytes = 60'000;               // … so many bytes come, or the end
  std::size_t header_limit = std::size_t{64} << 10;  // bytes
  std::size_t body_limit = std::size_t{64} << 20;    // bytes of a body that is not given to on_body
  // Hears the status and the headers before the body; false: the body is not read.
  std::function<bool(const Response& head)> on_head = {};
  std::function<void(std::string_view part)> on_body = {};  // of a 2xx answer; nothing: the response holds the body
  std::stop_token stop = {};
};

// The answer, of any status, or why there is none.
[[nodiscard]] Result transfer(const TransferRequest& request);

// The address that a Location header of the answer to `url` means.
[[nodiscard]] std::string resolve_location(std::string_view url, std::string_view location);

// Scheme, host and port of a URL: who gets what is meant for one server alone.
[[nodiscard]] std::string origin_of(std::string_view url);

namespace detail {

// Whether a list as of NO_PROXY names the host: itself, a domain above it, or everybody.
[[nodiscard]] bool excepted(const std::string& list, const std::string& host);

}  // namespace detail
}  // namespace rlalgo::http

#ifndef RLALGO_COMPILED
#include <rlalgo/http/detail/transfer_impl.hpp>
#endif
