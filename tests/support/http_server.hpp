// An HTTP server inside the test program, on a free port of 127.0.0.1.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/http/server.hpp>

namespace rlalgo::support {

class HttpServer {
 public:
  // status and body for a path and a request body; called on the server's threads, one at a time
  using Answer = std::function<std::pair<int, std::string>(const std::string& path, const std::string& body)>;

  explicit HttpServer(Answer answer)
      : answer_(std::move(answer)),
        server_({.body_limit = std::size_t{1} << 30}, [this](const std::shared_ptr<http::Exchange>& exchange) {
          const http::Request& request = exchange->request();
          const std::lock_guard lock(mutex_);
          seen_.emplace_back(request.target, request.body);
          auto [status, body] = answer_(request.target, request.body);
          exchange->respond({status, {{"Content-Type", "application/json"}}, std::move(body)});
        }) {}

  [[nodiscard]] std::string url() const { return server_.url(); }
  // Path and body of every request so far.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  Answer answer_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> seen_;
  http::Server server_;
};

}  // namespace rlalgo::support
