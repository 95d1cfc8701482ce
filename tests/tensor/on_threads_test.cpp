#include <rlalgo/tensor/on_threads.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include <support/catch.hpp>

using namespace rlalgo::tensor;

TEST_CASE("every item is taken once, by no more threads than LibTorch has") {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    CHECK(threads_here() == threads);
    for (const std::int64_t items : {0, 1, 2, 57}) {
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(items));
      std::atomic<int> inside = 0, most = 0;
      on_threads(items, [&](std::int64_t i) {
        const int now = ++inside;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        ++taken[static_cast<std::size_t>(i)];
        std::this_thread::yield();
        --inside;
      });
      for (const auto& t : taken) REQUIRE(t == 1);
      CHECK(most <= threads);
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("stretches cover all rows, each but the last one whole") {
  for (const std::int64_t rows : {0, 1, 6, 7, 8, 20}) {
    std::vector<std::atomic<int>> taken(static_cast<std::size_t>(rows));
    on_stretches(rows, 7, [&](std::int64_t begin, std::int64_t end) {
      CHECK(begin % 7 == 0);
      CHECK((end == rows || end - begin == 7));
      for (std::int64_t r = begin; r < end; ++r) ++taken[static_cast<std::size_t>(r)];
    });
    for (const auto& t : taken) REQUIRE(t == 1);
  }
}

TEST_CASE("what an item throws reaches the caller, and the next loop runs") {
  const auto fails = [](std::int64_t i) {
    if (i % 3 == 1) throw std::runtime_error("of an item");
  };
  CHECK_THROWS_WITH(on_threads(100, fails), "of an item");
  CHECK_THROWS_WITH(on_threads(2, fails), "of an item");
  std::atomic<int> done = 0;
  on_threads(100, [&](std::int64_t) { ++done; });
  CHECK(done == 100);
}
