// A small pool for phases of microseconds: tasks are claimed one by one, workers spin briefly and then sleep.
//
// run(tasks, f) calls f(task, thread) once for each task in [0, tasks), thread in [0, threads()), the caller being
// thread 0 and taking part. It waits only for tasks that a worker has claimed: a worker that the scheduler keeps off
// the core (a busy neighbour) delays nothing, since the caller takes the tasks it would have done. Idle workers spin
// for `spin_seconds` and then sleep in the kernel until the next run; parked workers are the only wait without a
// deadline.
//
// One run at a time per pool (a mutex serialises callers); f must not call run of the same pool. If a task
// throws, the first exception (in time) is rethrown; whether the other tasks still ran is not specified.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlalgo::core {

class ThreadPool {
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration stall = std::chrono::microseconds(300);
  static constexpr Clock::duration longest_penalty = std::chrono::milliseconds(100);

 public:
  // `threads` includes the caller; workers start at the first run that can use them.
  explicit ThreadPool(int threads, double spin_seconds = 50e-6)
      : threads_(threads < 1 ? 1 : threads),
        spin_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(spin_seconds))) {}
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    stop_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  [[nodiscard]] int threads() const noexcept { return threads_; }

  template <class F>
  void run(std::uint32_t tasks, F&& f) {
    if (threads_ == 1 || tasks <= 1) return alone(tasks, f);
    const std::lock_guard lock(mutex_);
    const auto begin = Clock::now();
    if (begin < alone_until_) return alone(tasks, f);
    if (workers_.empty()) start();
    using Function = std::remove_reference_t<F>;
    invoke_ = [](void* function, std::uint32_t task, int thread) { (*static_cast<Function*>(function))(task, thread); };
    function_ = const_cast<void*>(static_cast<const void*>(std::addressof(f)));
    tasks_ = tasks;
    unfinished_.store(tasks, std::memory_order_relaxed);
    ++generation_;
    ticket_.store(generation_ << 32U | tasks);  // publishes invoke_, function_ and tasks_
    if (sleepers_.load() > 0) {
      epoch_.fetch_add(1);
      epoch_.notify_all();
    }
    std::uint32_t own = 0;
    while (work(0)) ++own;
    wait_for_claimed(begin, own);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void start() {
    for (int thread = 1; thread < threads_; ++thread) workers_.emplace_back([this, thread] { idle(thread); });
  }

  // Claims one task and does it; false when none is left. The ticket is (generation, tasks left): a claim succeeds only
  // while its job is unfinished, so the job's description cannot change under the claimant.
  bool work(int thread) {
    std::uint64_t ticket = ticket_.load();
    do {
      if (static_cast<std::uint32_t>(ticket) == 0) return false;
    } while (!ticket_.compare_exchange_weak(ticket, ticket - 1));
    try {
      invoke_(function_, tasks_ - static_cast<std::uint32_t>(ticket), thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1) == 1 && thread != 0) unfinished_.notify_one();
    return true;
  }

  template <class F>
  static void alone(std::uint32_t tasks, F&& f) {
    for (std::uint32_t task = 0; task < tasks; ++task) f(task, 0);
  }

  void wait_for_claimed(Clock::time_point begin, std::uint32_t own) {
    if (unfinished_.load() == 0) return;
    const auto idle = Clock::now();
    auto now = idle;
    while (unfinished_.load() != 0 && now < idle + spin_) {
      for (int i = 0; i < 32 && unfinished_.load() != 0; ++i) pause();
      now = Clock::now();
    }
    if (unfinished_.load() == 0) {
      penalty_ -= penalty_ / 64;
      return;
    }
    for (std::uint32_t left = unfinished_.load(); left != 0; left = unfinished_.load()) unfinished_.wait(left);
    now = Clock::now();
    // A wait far longer than the caller's own tasks took means that a worker lost its core.
    if (own == 0 || now - idle < 4 * ((idle - begin) / own) + stall) return;
    penalty_ = std::min(longest_penalty, std::max<Clock::duration>(2 * penalty_, 2 * (now - idle)));
    alone_until_ = now + penalty_;
  }

  void idle(int thread) {
    while (!stop_.load()) {
      if (work(thread)) continue;
      const auto give_up = Clock::now() + spin_;
      bool found = false;
      do {
        for (int i = 0; i < 32 && !found; ++i) {
          pause();
          found = static_cast<std::uint32_t>(ticket_.load(std::memory_order_relaxed)) != 0 || stop_.load();
        }
      } while (!found && Clock::now() < give_up);
      if (found) continue;
      // Either this worker sees the new ticket below, or run() sees the sleeper and moves the epoch (both are
      // sequentially consistent): no wake-up is lost.
      sleepers_.fetch_add(1);
      const std::uint32_t epoch = epoch_.load();
      if (static_cast<std::uint32_t>(ticket_.load()) == 0 && !stop_.load()) epoch_.wait(epoch);
      sleepers_.fetch_sub(1);
    }
  }

  int threads_;
  Clock::duration spin_;
  Clock::duration penalty_{};  // length of the last spell alone
  Clock::time_point alone_until_{};
  std::mutex mutex_;
  std::vector<std::thread> workers_;
  void (*invoke_)(void*, std::uint32_t, int) = nullptr;
  void* function_ = nullptr;
  std::uint32_t tasks_ = 0;
  std::uint64_t generation_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace rlalgo::core
