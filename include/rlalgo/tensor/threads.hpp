// As many of LibTorch's threads as a piece of work is worth.
//
// An operation that is divided ends when the last thread has done its share and all have met: some 50 µs of waking up on
// an idle machine, a time slice of milliseconds where a neighbour holds a processor. So operations shorter than a
// millisecond or so are computed by the calling thread alone, and longer ones by one thread more for each
// `share_seconds`. The number follows from shapes and never from the clock, so a repeated run repeats its bits.
//
// ThreadLimit sets LibTorch's number of threads for operations of the calling thread, OpenMP's and MKL's, and sets it
// back at its end. It only ever lowers it, and never leaves more threads than processors (os/processors.hpp). Limits
// nest. A thread whose first call of LibTorch falls into the limit of another one begins with that number.
#pragma once

namespace rlalgo::tensor {

inline constexpr double share_seconds = 500e-6;     // of one thread's work in an operation, at least
inline constexpr double flops_per_second = 4e10;    // of one core in a matrix product, float32
inline constexpr double elements_per_second = 4e8;  // of one core in an optimizer's update, float32

// Threads worth having for operations that take one thread `seconds` each, of at most `most`. Time that is not known, 0,
// is worth all.
[[nodiscard]] int threads_worth(double seconds, int most);

// What LibTorch uses now, as far as there are processors for it.
[[nodiscard]] int available_threads();

class ThreadLimit {
 public:
  // For operations that take one thread `seconds` each; 0 = not known: as many as are available.
  explicit ThreadLimit(double seconds);
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  ~ThreadLimit();

  // Of matrix products of so many floating-point operations; of element-wise updates.
  [[nodiscard]] static ThreadLimit of_products(double flops) { return ThreadLimit(flops / flops_per_second); }
  [[nodiscard]] static ThreadLimit of_updates(double elements) { return ThreadLimit(elements / elements_per_second); }

 private:
  int before_;
};

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/threads_impl.hpp>
#endif
