#include <support/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <rlalgo/core/thread_pool.hpp>

using rlalgo::core::ThreadPool;

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
  pool.run(20, [&](std::uint32_t, int thread) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (thread == 1) by_worker.fetch_add(1);
  });
  CHECK(by_worker > 0);
}
