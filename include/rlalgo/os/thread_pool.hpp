// A small pool for phases of microseconds: tasks are claimed one by one, workers spin briefly and then sleep.
//
// run(tasks, f) calls f(task, thread) once for each task in [0, tasks), thread in [0, threads()), the caller being
// thread 0 and taking part. It waits only for tasks that a worker has claimed: a worker that the scheduler keeps off
// the core (a busy neighbour) delays nothing, since the caller takes the tasks it would have done. Whoever waits, an idle
// worker or the caller for the last tasks, spins for `spin_seconds` at most, which bridges the gap between two phases,
// and then sleeps on a condition variable; parked workers are the only wait without a deadline.
//
// One run at a time per pool (a mutex serialises callers); f must not call run of the same pool. If a task
// throws, the first exception (in time) is rethrown; whether the other tasks still ran is not specified.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlalgo::os {

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
    wake(workers_.size());
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
    if (sleepers_.load() > 0) wake(tasks - 1);
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

  // Wakes up to `count` sleeping workers.
  void wake(std::size_t count) {
    { const std::lock_guard lock(sleep_mutex_); }  // who counts as a sleeper either waits or will look again
    if (count >= workers_.size())
      awake_.notify_all();
    else
      for (; count > 0; --count) awake_.notify_one();
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
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
      { const std::lock_guard lock(sleep_mutex_); }
      finished_.notify_one();
    }
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
    {
      std::unique_lock lock(sleep_mutex_);
      caller_sleeps_.store(true);
      finished_.wait(lock, [this] { return unfinished_.load() == 0; });
      caller_sleeps_.store(false);
    }
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
      // Either this worker sees the new ticket below, or run() sees the sleeper and wakes it (both are sequentially
      // consistent): no wake-up is lost. The same holds for the caller that sleeps and `unfinished_`.
      std::unique_lock lock(sleep_mutex_);
      sleepers_.fetch_add(1);
      awake_.wait(lock, [this] { return static_cast<std::uint32_t>(ticket_.load()) != 0 || stop_.load(); });
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
  std::atomic<bool> caller_sleeps_{false}, stop_{false};
  std::mutex sleep_mutex_;
  std::condition_variable awake_, finished_;
};

}  // namespace rlalgo::os
