// Whether a request without a key may be a program of this machine, and not a page in its browser.
//
// A page of anybody may have the browser send requests to 127.0.0.1, without reading the answers: as a form or as
// text/plain, with a header Origin that no page can change. Or its own name may come to mean 127.0.0.1 (DNS rebinding):
// then the header Host has that name. So, where no key is asked for:
//   Host            of a server on this machine's own address: the machine's own, one of ServerConfig::allowed_hosts, or a
//                   name without a dot, which no page of the web has
//   Origin          none, this machine's own, or that of Host
//   Sec-Fetch-Site  none, same-origin or none
//   Content-Type    of a body: JSON or bytes. What forms and `curl -d` send (application/x-www-form-urlencoded), and none
//                   at all, pass where neither Origin nor Sec-Fetch-Site says that a browser sent it
//
// Errors: [rlalgo.serve.29] a foreign Host or Origin (403); [.30] a body that is not said to be JSON (415).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/http/message.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve::detail {

inline bool is_loopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

[[nodiscard]] inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

// The name in a Host header or behind the scheme of an Origin: without port, brackets and a dot at the end.
[[nodiscard]] inline std::string host_name(std::string_view authority) {
  std::string out = lower(authority);
  if (out.starts_with('[')) {
    const std::size_t end = out.find(']');
    return end == std::string::npos ? out : out.substr(1, end - 1);
  }
  out = out.substr(0, out.find(':'));
  if (out.ends_with('.')) out.pop_back();
  return out;
}

// Digits and dots alone: 127.evil.example is a name like others.
[[nodiscard]] inline bool own_name(const std::string& name, const std::vector<std::string>& allowed) {
  const bool digits = !name.empty() && name.find_first_not_of("0123456789.") == std::string::npos;
  return (digits && name.starts_with("127.")) || name == "::1" || name == "localhost" || name.ends_with(".localhost") ||
         std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

[[noreturn]] inline void refuse_foreign(const char* header, const std::string& found) {
  refuse_request(403, 29,
                 {.what = "the request comes from elsewhere, and the server asks for no key",
                  .found = std::string(header) + ": " + found,
                  .expected = "what programs of this machine send",
                  .remedy = "start the server with --api-key-file, or with --allowed-host NAME for a name of its own"});
}

inline void check_origin(const http::Headers& headers, bool on_loopback, const std::vector<std::string>& allowed) {
  const std::string* const host = http::find_header(headers, "Host");
  const std::string name = host == nullptr ? std::string() : host_name(*host);
  const bool dotless = !name.empty() && name.find_first_of(".:") == std::string::npos;
  if (on_loopback && host != nullptr && !dotless && !own_name(name, allowed)) refuse_foreign("Host", *host);
  if (const std::string* const origin = http::find_header(headers, "Origin")) {
    const std::size_t scheme = origin->find("://");
    const std::string from = scheme == std::string::npos ? std::string() : host_name(origin->substr(scheme + 3));
    if (from.empty() || (!own_name(from, allowed) && from != name)) refuse_foreign("Origin", *origin);
  }
  if (const std::string* const site = http::find_header(headers, "Sec-Fetch-Site"))
    if (*site != "same-origin" && *site != "none") refuse_foreign("Sec-Fetch-Site", *site);
}

// Of a request with a body.
inline void check_content_type(const http::Headers& headers) {
  const std::string* const given = http::find_header(headers, "Content-Type");
  std::string type = given == nullptr ? std::string() : lower(given->substr(0, given->find(';')));
  while (type.ends_with(' ') || type.ends_with('\t')) type.pop_back();
  if (type == "application/json" || type.ends_with("+json") || type == "application/octet-stream") return;
  const bool browser =
      http::find_header(headers, "Origin") != nullptr || http::find_header(headers, "Sec-Fetch-Site") != nullptr;
  if (!browser && (type.empty() || type == "application/x-www-form-urlencoded")) return;
  refuse_request(415, 30,
                 {.what = "the body is not said to be JSON",
                  .found = type.empty() ? "no Content-Type" : "Content-Type: " + type,
                  .expected = "Content-Type: application/json"});
}

}  // namespace rlalgo::serve::detail
