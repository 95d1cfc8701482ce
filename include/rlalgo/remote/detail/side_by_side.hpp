// Calls to other processes, many at a time: f(i) once for each i, on up to `at_once` threads of which the caller is one.
// When a call throws, no further one is begun, and the first exception is rethrown when all have ended.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rlalgo::remote::detail {

template <class F>
void side_by_side(std::size_t tasks, std::size_t at_once, F&& f) {
  std::atomic<std::size_t> next = 0;
  std::mutex failing;
  std::exception_ptr error;
  const auto work = [&] {
    for (std::size_t i = next++; i < tasks; i = next++) try {
        f(i);
      } catch (...) {
        const std::lock_guard lock(failing);
        if (!error) error = std::current_exception();
        next = tasks;
      }
  };
  std::vector<std::thread> threads;
  for (std::size_t k = 1; k < std::min(at_once, tasks); ++k) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace rlalgo::remote::detail
