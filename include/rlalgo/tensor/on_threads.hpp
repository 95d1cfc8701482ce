// A loop over items on LibTorch's threads, for kernels of our own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

namespace rlalgo::tensor {

// The threads that a loop would have now: one within a parallel region, or where LibTorch brings no OpenMP.
[[nodiscard]] std::int64_t threads_here();

namespace detail {

// body(data) on every thread of a parallel region of the OpenMP that LibTorch brings. (at::parallel_for needs the compiler's own
// OpenMP, which a user of headers may not have asked for.)
void in_parallel(void (*body)(void*), void* data, std::int64_t threads);

}  // namespace detail

// f(i) for 0 ≤ i < items, each once, in any order. What f throws first is thrown when all threads have stopped.
template <class F>
void on_threads(std::int64_t items, const F& f) {
  struct Shared {
    const F& f;
    std::int64_t items;
    std::atomic<std::int64_t> next;
    std::atomic<bool> failed;
    std::exception_ptr failure;
  } shared{f, items, {0}, {false}, {}};
  const auto body = [](void* data) {
    auto& all = *static_cast<Shared*>(data);
    try {
      for (std::int64_t i; (i = all.next.fetch_add(1)) < all.items;) all.f(i);
    } catch (...) {  // no exception may leave a parallel region
      if (!all.failed.exchange(true)) all.failure = std::current_exception();
      all.next = all.items;
    }
  };
  const std::int64_t threads = std::min(items, threads_here());
  if (threads > 1)
    detail::in_parallel(body, &shared, threads);
  else
    body(&shared);
  if (shared.failure) std::rethrow_exception(shared.failure);
}

// f(begin, end) for stretches of `most` rows, the last one shorter.
template <class F>
void on_stretches(std::int64_t rows, std::int64_t most, const F& f) {
  on_threads((rows + most - 1) / most, [&](std::int64_t i) { f(i * most, std::min(rows, (i + 1) * most)); });
}

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/on_threads_impl.hpp>
#endif
