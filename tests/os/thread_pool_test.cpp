#include <support/catch.hpp>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/thread_pool.hpp>

using rlalgo::os::ThreadPool;

namespace {
// Of all threads of this process.
double processor_seconds() {
  rusage usage{};
  REQUIRE(::getrusage(RUSAGE_SELF, &usage) == 0);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
}  // namespace

TEST_CASE("every task runs exactly once, whatever the number of threads") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    REQUIRE(pool.threads() == threads);
    for (const std::uint32_t tasks : {0U, 1U, 2U, 7U, 1000U}) {
      std::vector<std::atomic<int>> hits(tasks);
      std::atomic<bool> in_range{true};
      pool.run(tasks, [&](std::uint32_t task, int thread) {
        hits[task].fetch_add(1);
        if (thread < 0 || thread >= threads) in_range = false;
      });
      for (const auto& hit : hits) REQUIRE(hit.load() == 1);
      CHECK(in_range);
    }
  }
}

TEST_CASE("many short runs in a row lose no task, also when workers fall asleep in between") {
  ThreadPool pool(3, 1e-6);
  std::vector<std::uint64_t> sums(64, 0);
  for (int round = 0; round < 3000; ++round) {
    pool.run(64, [&](std::uint32_t task, int) { sums[task] += static_cast<std::uint64_t>(round); });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (const std::uint64_t sum : sums) CHECK(sum == 3000ULL * 2999ULL / 2);
}

TEST_CASE("an exception in a task is rethrown once and leaves the pool usable") {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  CHECK_THROWS_AS(pool.run(100,
                           [&](std::uint32_t task, int) {
                             done.fetch_add(1);
                             if (task == 50) throw std::runtime_error("task 50");
                           }),
                  std::runtime_error);
  CHECK(done == 100);
  pool.run(100, [&](std::uint32_t, int) { done.fetch_add(1); });
  CHECK(done == 200);
}

TEST_CASE("a worker takes part when tasks are long") {
  ThreadPool pool(2);
  std::atomic<int> by_worker{0};
  pool.run(200, [&](std::uint32_t, int thread) {
    if (by_worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (thread == 1) by_worker.fetch_add(1);
  });
  CHECK(by_worker > 0);
}

TEST_CASE("after a worker stalls, the caller works alone for a while and then shares again") {
  ThreadPool pool(2);
  const auto shared = [&] {  // did a worker take part in 2,000 tasks of about 10 µs?
    std::atomic<int> by_worker{0};
    pool.run(2000, [&](std::uint32_t, int thread) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(10);
      while (std::chrono::steady_clock::now() < end) {
      }
      if (thread == 1) by_worker.fetch_add(1);
    });
    return by_worker > 0;
  };
  const auto shared_in_time = [&] {  // the machine may be busy
    const rlalgo::os::Deadline deadline(20.0);
    while (!deadline.passed())
      if (shared()) return true;
    return false;
  };
  CHECK(shared_in_time());
  std::atomic<bool> worker_holds_one{false};
  const rlalgo::os::Deadline deadline(20.0);
  while (!worker_holds_one && !deadline.passed())
    pool.run(100, [&](std::uint32_t, int thread) {
      if (thread == 1 && !worker_holds_one.exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(80));
      if (thread == 0 && !worker_holds_one) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  REQUIRE(worker_holds_one);
  CHECK_FALSE(shared());
  CHECK(shared_in_time());
}

TEST_CASE("who waits takes no processor time: idle workers, and the caller for a long last task") {
  ThreadPool pool(4);
  std::atomic<bool> worker_sleeps{false};
  const rlalgo::os::Deadline deadline(20.0);
  double spent = 0.0;
  while (!worker_sleeps && !deadline.passed()) {
    const double before = processor_seconds();
    pool.run(64, [&](std::uint32_t, int thread) {
      if (thread != 0 && !worker_sleeps.exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      if (!worker_sleeps) std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
    spent = processor_seconds() - before;
  }
  REQUIRE(worker_sleeps);
  CHECK(spent < 0.1);  // of 0.4 s that the caller and two workers waited
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(processor_seconds() - before < 0.05);
}
