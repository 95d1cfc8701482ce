// Definitions of transfer.hpp: a socket with deadlines, TLS over it, Beast's parser of answers.
#pragma once

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/http/detail/address.hpp>
#include <rlalgo/http/detail/deadline_socket.hpp>
#include <rlalgo/http/detail/header_end.hpp>
#include <rlalgo/http/detail/resolve.hpp>
#include <rlalgo/http/detail/tls_library.hpp>
#include <rlalgo/http/transfer.hpp>

namespace rlalgo::http {

namespace detail {

struct Url {
  bool secure = false;
  Address address;     // its path is not used
  std::string target;  // path and query
};

inline std::optional<Url> parse_url(std::string_view text) {
  Url out;
  out.secure = text.starts_with("https://");
  if (!out.secure && !text.starts_with("http://")) return std::nullopt;
  text.remove_prefix(out.secure ? 8 : 7);
  text = text.substr(0, text.find('#'));
  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  const std::string authority(text.substr(0, end));
  out.target = text.substr(end);
  if (!out.target.starts_with('/')) out.target.insert(0, 1, '/');
  auto address = parse_address("http://" + authority);
  if (!address || !address->path.empty() || !is_plain(out.target)) return std::nullopt;
  out.address = std::move(*address);
  const bool named = !authority.ends_with(']') && authority.rfind(':') != std::string::npos;
  if (out.secure && !named) out.address.port = 443;
  return out;
}

inline Url url_of(std::string_view text) {
  auto out = parse_url(text);
  if (!out)
    core::raise_usage(
        "http", 10,
        {.what = "the address cannot be used", .found = std::string(text), .expected = "https://HOST[:PORT]/PATH"});
  return std::move(*out);
}

inline std::string proxy_variable(const std::string& lower) {
  std::string upper = lower;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const std::string& name : {lower, upper})
    if (const char* value = std::getenv(name.c_str()); value != nullptr && *value != '\0') return value;
  return {};
}

RLALGO_INLINE bool excepted(const std::string& list, const std::string& host) {
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::string one = list.substr(at, end - at);
    one.erase(std::remove(one.begin(), one.end(), ' '), one.end());
    at = end + 1;
    if (one == "*") return true;
    if (one.starts_with("*.")) one.erase(0, 1);
    if (one.empty()) continue;
    const std::string domain = one.front() == '.' ? one : "." + one;
    if (host == one || (host.size() >= domain.size() && std::string_view(host).ends_with(domain))) return true;
  }
  return false;
}

inline std::optional<Address> proxy_for(const Url& url) {
  if (excepted(proxy_variable("no_proxy"), url.address.host)) return std::nullopt;
  std::string value = proxy_variable(url.secure ? "https_proxy" : "http_proxy");
  if (value.empty()) value = proxy_variable("all_proxy");
  if (value.empty()) return std::nullopt;
  if (value.find("://") == std::string::npos) value.insert(0, "http://");
  auto address = parse_address(value);
  if (!address)
    core::raise_usage(
        "http", 10,
        {.what = "the proxy of the environment cannot be used", .found = value, .expected = "http://HOST:PORT"});
  return address;
}

class OneTransfer {
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;
  using Kind = Failure::Kind;

 public:
  explicit OneTransfer(const TransferRequest& request)
      : request_(request), url_(url_of(request.url)), socket_(context_) {}

  Result run() {
    if (auto failed = connect()) return *failed;
    waiting_for_ = "the server to take the request";
    ErrorCode error;
    {
      const DeadlineSocket::Call call(socket_, in(request_.idle_seconds), request_.stop);
      write(head(), error);
    }
    if (error) return failure(error);
    waiting_for_ = "an answer";
    return receive();
  }

 private:
  static Clock::time_point in(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
  }

  std::optional<Failure> connect() {
    const std::optional<Address> proxy = proxy_for(url_);
    const Address& first = proxy ? *proxy : url_.address;
    const auto deadline = in(request_.connect_seconds);
    waiting_for_ = (proxy ? "the address of the proxy " : "the address of ") + first.host;
    const Resolved found = resolve(first.host, deadline, request_.stop);
    if (!found.in_time)
      return request_.stop.stop_requested() ? Failure{Kind::cancelled, waiting_for_, "the call was given up"}
                                            : Failure{Kind::timeout, waiting_for_, "time is up"};
    if (found.addresses.empty()) return Failure{Kind::unreachable, waiting_for_, found.error};
    waiting_for_ = "a connection to " + first.authority;
    ErrorCode error;
    for (const auto& address : found.addresses) {
      const DeadlineSocket::Call call(socket_, in(request_.connect_seconds), request_.stop);
      socket_.connect({address, first.port}, error);
      if (!error || error == boost::asio::error::operation_aborted) break;
    }
    if (error == boost::asio::error::operation_aborted) return failure(error);
    if (error)
      return Failure{error == boost::asio::error::timed_out ? Kind::timeout : Kind::unreachable, waiting_for_,
                     error.message()};
    const DeadlineSocket::Call call(socket_, in(request_.connect_seconds), request_.stop);
    if (proxy && url_.secure) {
      if (auto failed = open_tunnel()) return failed;
    } else if (proxy) {
      through_proxy_ = true;
    }
    if (!url_.secure) return std::nullopt;
    waiting_for_ = "the TLS handshake with " + url_.address.authority;
    tls_.emplace(socket_, url_.address.host);
    tls_->handshake(error);
    if (error) return failure(error);
    return std::nullopt;
  }

  // Asks a proxy for a connection to the server.
  std::optional<Failure> open_tunnel() {
    const std::string name =
        (url_.address.host.find(':') != std::string::npos ? "[" + url_.address.host + "]" : url_.address.host) + ":" +
        std::to_string(url_.address.port);
    waiting_for_ = "the proxy to reach " + name;
    ErrorCode error;
    write_plain("CONNECT " + name + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n", error);
    std::string answer;
    char byte = 0;
    while (!error && answer.size() < request_.header_limit && !answer.ends_with("\r\n\r\n"))
      if (socket_.read_some(boost::asio::buffer(&byte, 1), error) == 1) answer += byte;
    if (error) return failure(error);
    const std::string line = answer.substr(0, answer.find("\r\n"));
    if (line.size() > 9 && line.starts_with("HTTP/1.") && line[9] == '2') return std::nullopt;
    return Failure{Kind::unreachable, waiting_for_, "the proxy answers " + line};
  }

  [[nodiscard]] std::string head() const {
    const auto one_line = [](std::string text) {
      std::replace_if(
          text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
      return text;
    };
    std::string out = request_.method + " " + (through_proxy_ ? "http://" + url_.address.authority : "") + url_.target +
                      " HTTP/1.1\r\nHost: " + url_.address.authority + "\r\nUser-Agent: rlalgo/" +
                      std::string(version) + "\r\nAccept-Encoding: identity\r\nConnection: close\r\n";
    for (const Header& header : request_.headers) out += one_line(header.name) + ": " + one_line(header.value) + "\r\n";
    return out + "\r\n";
  }

  void write_plain(std::string_view bytes, ErrorCode& error) {
    while (!bytes.empty() && !error)
      bytes.remove_prefix(socket_.write_some(boost::asio::buffer(bytes.data(), bytes.size()), error));
  }
  void write(std::string_view bytes, ErrorCode& error) {
    if (tls_)
      tls_->write(bytes, error);
    else
      write_plain(bytes, error);
  }

  void renew_parser() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<std::uint32_t>(
        std::min<std::size_t>(request_.header_limit, std::numeric_limits<std::uint32_t>::max())));
    if (request_.on_body)
      parser_->body_limit(
          std::numeric_limits<std::uint64_t>::max());  // of none, Beast 1.74 refuses every Content-Length
    else
      parser_->body_limit(request_.body_limit);
    parser_->skip(request_.method == "HEAD");
  }

  Result receive() {
    namespace beast_http = boost::beast::http;
    renew_parser();
    std::string received;
    std::string buffer(std::size_t{256} << 10, '\0');
    auto window_end = in(request_.window_seconds);
    std::uint64_t window_begin = 0;
    while (true) {
      ErrorCode error;
      std::size_t count = 0;
      {
        const DeadlineSocket::Call call(socket_, std::min(in(request_.idle_seconds), window_end), request_.stop);
        count = tls_ ? tls_->read_some(buffer.data(), buffer.size(), error)
                     : socket_.read_some(boost::asio::buffer(buffer.data(), buffer.size()), error);
      }
      bytes_ += count;
      if (Clock::now() >= window_end) {
        if (bytes_ - window_begin < request_.window_bytes)
          return Failure{Kind::timeout, progress(),
                         "only " + std::to_string(bytes_ - window_begin) + " bytes in " +
                             std::to_string(static_cast<std::int64_t>(request_.window_seconds)) + " s"};
        if (error == boost::asio::error::timed_out) error = {};
        window_begin = bytes_;
        window_end = in(request_.window_seconds);
        if (count == 0 && !error) continue;
      }
      if (error == boost::asio::error::eof) {
        ErrorCode end = beast_http::error::partial_message;
        // Over TLS, an end that the server has not announced may be anybody's.
        if (parser_->got_some() && !tls_) parser_->put_eof(end);
        if (parser_->got_some() && tls_ && !parser_->is_done() && parser_->is_header_done() && !parser_->chunked() &&
            !parser_->content_length())
          parser_->put_eof(end);
        if (!end && parser_->is_done()) return complete();
        return Failure{Kind::broken, progress(), "the server closed the connection"};
      }
      if (error) return failure(error);
      received.append(buffer.data(), count);
      if (auto done = parse(received)) return std::move(*done);
    }
  }

  // The result, once there is one.
  std::optional<Result> parse(std::string& received) {
    namespace beast_http = boost::beast::http;
    while (!received.empty()) {
      ErrorCode error;
      const std::size_t used = parser_->put(
          boost::asio::buffer(received.data(), bytes_for_parser(received, parser_->is_header_done())), error);
      received.erase(0, used);
      if (!error || error == beast_http::error::need_more)
        if (auto done = deliver()) return done;
      if (error == beast_http::error::need_more) {
        if (received.size() <= request_.header_limit) return std::nullopt;
        error = beast_http::error::header_limit;
      }
      if (error == beast_http::error::header_limit)
        return Failure{Kind::too_large, progress(),
                       "the header is larger than " + std::to_string(request_.header_limit) + " bytes"};
      if (error == beast_http::error::body_limit) return too_large();
      if (error) return Failure{Kind::malformed, progress(), "what came is no HTTP answer"};
      if (parser_->is_done()) {
        const unsigned status = parser_->get().result_int();
        if (status < 100 || status >= 200) return complete();
        renew_parser();
        told_ = false;
      } else if (used == 0) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] Response head_response() {
    Response out;
    auto& message = parser_->get();
    out.status = static_cast<int>(message.result_int());
    for (const auto& field : message)
      out.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    return out;
  }

  std::optional<Result> deliver() {
    if (!parser_->is_header_done() || parser_->get().result_int() < 200) return std::nullopt;
    if (!std::exchange(told_, true) && request_.on_head && !request_.on_head(head_response()))
      return Result(head_response());
    std::string& body = parser_->get().body();
    if (!request_.on_body || parser_->get().result_int() / 100 != 2) {
      if (body.size() > request_.body_limit) return Result(too_large());
      return std::nullopt;
    }
    if (body.empty()) return std::nullopt;
    const std::string part = std::exchange(body, {});
    request_.on_body(part);
    return std::nullopt;
  }

  Result complete() {
    Response out = head_response();
    out.body = std::move(parser_->get().body());
    return out;
  }

  [[nodiscard]] std::string progress() const {
    return bytes_ > 0 ? "the rest of the answer (" + std::to_string(bytes_) + " bytes so far)" : waiting_for_;
  }
  [[nodiscard]] Failure too_large() const {
    return {Kind::too_large, progress(), "the body is larger than " + std::to_string(request_.body_limit) + " bytes"};
  }
  [[nodiscard]] Failure failure(const ErrorCode& error) const {
    if (error == boost::asio::error::operation_aborted) return {Kind::cancelled, progress(), "the call was given up"};
    if (error == boost::asio::error::timed_out) return {Kind::timeout, progress(), "time is up"};
    if (tls_ && error == TlsSession::refused()) return {Kind::malformed, progress(), tls_->reason()};
    if (error == boost::asio::error::eof) return {Kind::broken, progress(), "the server closed the connection"};
    return {Kind::broken, progress(), error.message()};
  }

  const TransferRequest& request_;
  Url url_;
  boost::asio::io_context context_;
  DeadlineSocket socket_;
  std::optional<TlsSession> tls_;
  std::optional<Parser> parser_;
  std::string waiting_for_;
  std::uint64_t bytes_ = 0;
  bool through_proxy_ = false, told_ = false;
};

}  // namespace detail

RLALGO_INLINE Result transfer(const TransferRequest& request) { return detail::OneTransfer(request).run(); }

RLALGO_INLINE std::string resolve_location(std::string_view url, std::string_view location) {
  if (location.starts_with("http://") || location.starts_with("https://")) return std::string(location);
  const std::size_t scheme = url.find("://");
  if (location.starts_with("//")) return std::string(url.substr(0, scheme + 1)) + std::string(location);
  const std::size_t begin = scheme + 3;
  const std::string_view origin = url.substr(0, std::min(url.find_first_of("/?#", begin), url.size()));
  if (location.starts_with('/')) return std::string(origin) + std::string(location);
  std::string_view path = url.substr(origin.size());
  path = path.substr(0, path.find_first_of("?#"));
  const std::size_t folder = path.rfind('/');
  return std::string(origin) + (folder == std::string_view::npos ? "/" : std::string(path.substr(0, folder + 1))) +
         std::string(location);
}

RLALGO_INLINE std::string origin_of(std::string_view url) {
  const detail::Url parsed = detail::url_of(url);
  std::string host = parsed.address.host;
  std::transform(host.begin(), host.end(), host.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return (parsed.secure ? "https://" : "http://") + host + ":" + std::to_string(parsed.address.port);
}

}  // namespace rlalgo::http
