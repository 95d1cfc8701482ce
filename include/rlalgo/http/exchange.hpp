// A request at a server and the way to answer it, from any thread: at once, later, or bit by bit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/http/message.hpp>

namespace rlalgo::http {

namespace detail {

// The connection under an exchange.
class AnswerPath {
 public:
  virtual ~AnswerPath() = default;
  // Bytes for the wire; `last` ends the answer, `close` the connection with it. False: nobody takes them any more.
  virtual bool send(std::string bytes, bool last, bool close) = 0;
  // Calls back, at once when the client has gone already.
  virtual void on_gone(std::function<void()> call) = 0;
  [[nodiscard]] virtual bool gone() const = 0;
};

[[nodiscard]] inline const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

[[nodiscard]] inline std::string head_of(int status, const Headers& headers) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) + "\r\n";
  for (const Header& header : headers) {
    out += header.name + ": ";
    for (const char c : header.value) out += c == '\r' || c == '\n' ? ' ' : c;
    out += "\r\n";
  }
  return out;
}

}  // namespace detail

class Exchange {
 public:
  // `keep_alive`: whether the client may use the connection again. `http_10`: it knows no chunks.
  Exchange(Request request, std::shared_ptr<detail::AnswerPath> path, bool keep_alive, bool http_10)
      : request_(std::move(request)), path_(std::move(path)), keep_alive_(keep_alive), http_10_(http_10) {}
  ~Exchange() {
    if (state_ == State::unanswered) respond({.status = 500, .body = "no answer was given\n"});
    if (state_ != State::streaming) return;
    path_->send({}, true, true);  // the client sees an answer that breaks off
    if (answered_) answered_(status_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] const Request& request() const noexcept { return request_; }

  // Hears the status when the answer is complete, or has broken off, on the thread that has the end of it. To be said before
  // there is an answer.
  void when_answered(std::function<void(int status)> call) { answered_ = std::move(call); }

  // A whole answer. Only the first answer of an exchange counts.
  void respond(const Response& response) {
    if (!become(State::unanswered, State::done)) return;
    std::string out = detail::head_of(response.status, response.headers) + connection_line(!keep_alive_) +
                      "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
    if (request_.method != "HEAD") out += response.body;
    path_->send(std::move(out), true, !keep_alive_);
    if (answered_) answered_(response.status);
  }

  // An answer whose body is written bit by bit: begin, write …, end.
  void begin(int status, const Headers& headers) {
    if (!become(State::unanswered, State::streaming)) return;
    status_ = status;
    path_->send(detail::head_of(status, headers) + connection_line(closes_at_end()) +
                    (http_10_ ? "" : "Transfer-Encoding: chunked\r\n") + "\r\n",
                false, false);
  }
  // False when nobody takes it: the client has gone, or reads too slowly.
  bool write(std::string_view part) {
    if (state_ != State::streaming) return false;
    if (part.empty() || request_.method == "HEAD") return !gone();
    if (http_10_) return path_->send(std::string(part), false, false);
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", part.size());
    return path_->send(size + std::string(part) + "\r\n", false, false);
  }
  void end() {
    if (!become(State::streaming, State::done)) return;
    path_->send(http_10_ || request_.method == "HEAD" ? "" : "0\r\n\r\n", true, closes_at_end());
    if (answered_) answered_(status_);
  }

  // The client has closed the connection: nothing that is sent will be read.
  [[nodiscard]] bool gone() const { return path_->gone(); }
  // Calls back once when that happens before the answer is complete, on a thread of the server.
  void on_gone(std::function<void()> call) { path_->on_gone(std::move(call)); }

 private:
  enum class State { unanswered, streaming, done };

  bool become(State from, State to) { return state_.compare_exchange_strong(from, to); }
  [[nodiscard]] bool closes_at_end() const noexcept { return !keep_alive_ || http_10_; }
  static std::string connection_line(bool close) { return close ? "Connection: close\r\n" : ""; }

  Request request_;
  std::shared_ptr<detail::AnswerPath> path_;
  bool keep_alive_, http_10_;
  std::atomic<State> state_ = State::unanswered;
  int status_ = 0;  // of an answer that is streamed
  std::function<void(int)> answered_;
};

}  // namespace rlalgo::http
