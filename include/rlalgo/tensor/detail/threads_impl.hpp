// Definitions of threads.hpp.
#pragma once

#include <algorithm>

#include <ATen/Parallel.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE int threads_worth(double seconds, int most) {
  if (!(seconds > 0.0) || seconds >= share_seconds * most) return std::max(1, most);
  return std::max(1, static_cast<int>(seconds / share_seconds));
}

RLALGO_INLINE int available_threads() {
  static const int processors = os::usable_processors();
  return std::min(at::get_num_threads(), processors);
}

RLALGO_INLINE ThreadLimit::ThreadLimit(double seconds) : before_(at::get_num_threads()) {
  const int threads = threads_worth(seconds, available_threads());
  if (threads != before_) at::set_num_threads(threads);
}

RLALGO_INLINE ThreadLimit::~ThreadLimit() {
  if (at::get_num_threads() != before_) at::set_num_threads(before_);
}

}  // namespace rlalgo::tensor
