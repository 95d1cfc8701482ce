// Threads for what a request costs before the engine has it and after: parsing, rendering, tokenizing, and the writing of
// whole answers. The threads that read sockets do none of it, so a server answers /health whatever a request asks for.
//
// Clients are served one after the other (fair_queue.hpp). What waits is bounded.
//
// Errors: [rlalgo.serve.9] too many requests wait (429); [.10] the threads have ended (503).
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/os/processors.hpp>
#include <rlalgo/serve/fair_queue.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

class RequestPool {
 public:
  using Job = std::function<void()>;  // must not throw

  explicit RequestPool(std::size_t most_waiting = 4096, int threads = std::clamp(os::usable_processors(), 2, 4))
      : most_waiting_(most_waiting) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { loop(); });
  }
  ~RequestPool() { stop(); }
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // A request of `client`.
  void add(const std::string& client, Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (over_) refuse_request(503, 10, {.what = "the server is shutting down", .remedy = "ask another one"});
      if (jobs_.size() >= most_waiting_)
        refuse_request(429, 9,
                       {.what = "too many requests wait",
                        .found = std::to_string(jobs_.size()) + " that have not been read yet",
                        .remedy = "try again in a moment"});
      push(client, std::move(job));
    }
    changed_.notify_one();
  }

  // An answer of `client`: whatever waits, and on this thread where the pool has ended.
  void finish(const std::string& client, Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (!over_) push(client, std::exchange(job, nullptr));
    }
    if (job) return job();
    changed_.notify_one();
  }

  // Does what waits, and ends.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

 private:
  void push(const std::string& client, Job job) {
    jobs_.emplace(next_, std::move(job));
    queue_.push(client, next_++);
  }
  void loop() {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return over_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const auto at = jobs_.find(queue_.pop());
        job = std::move(at->second);
        jobs_.erase(at);
      }
      job();
    }
  }

  std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  FairQueue queue_;
  std::unordered_map<std::uint64_t, Job> jobs_;
  std::uint64_t next_ = 0;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rlalgo::serve
