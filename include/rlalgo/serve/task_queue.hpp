// A queue of tasks with one thread, for what takes too long for a thread of the HTTP server: tasks run in the order given.
//
// Errors: [rlalgo.serve.9] too many tasks wait (429); [.10] the thread has ended (503).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

class TaskQueue {
 public:
  using Task = std::function<void()>;  // must not throw

  explicit TaskQueue(std::size_t most_waiting = 64) : most_waiting_(most_waiting), thread_([this] { loop(); }) {}
  ~TaskQueue() { stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void add(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (over_) refuse_request(503, 10, {.what = "the server is shutting down", .remedy = "ask another one"});
      if (waiting_.size() >= most_waiting_)
        refuse_request(429, 9,
                       {.what = "too many requests wait",
                        .found = std::to_string(waiting_.size()) + " that change weights",
                        .remedy = "wait for the answer of one before the next"});
      waiting_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // Does what waits, and ends.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void loop() {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return over_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task();
    }
  }

  std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace rlalgo::serve
