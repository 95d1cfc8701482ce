// An HTTP server inside the test program, on a free port of 127.0.0.1.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <httplib.h>

namespace rlalgo::support {

class HttpServer {
 public:
  // status and body for a path and a request body; called on the server's threads, one at a time
  using Answer = std::function<std::pair<int, std::string>(const std::string& path, const std::string& body)>;

  explicit HttpServer(Answer answer) : answer_(std::move(answer)) {
    const auto handler = [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      seen_.emplace_back(request.path, request.body);
      const auto [status, body] = answer_(request.path, request.body);
      response.status = status;
      response.set_content(body, "application/json");
    };
    server_.Get(".*", handler);
    server_.Post(".*", handler);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~HttpServer() {
    server_.stop();
    thread_.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Path and body of every request so far.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  Answer answer_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> seen_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace rlalgo::support
