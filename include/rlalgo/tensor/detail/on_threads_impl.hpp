// Definitions of on_threads.hpp.
#pragma once

#include <cstdint>

#include <dlfcn.h>

#include <ATen/Parallel.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/on_threads.hpp>

namespace rlalgo::tensor {

namespace detail {

// As compilers call it; null where there is none.
using ParallelRegion = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
inline ParallelRegion parallel_region() {
  static const auto found = reinterpret_cast<ParallelRegion>(::dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

RLALGO_INLINE void in_parallel(void (*body)(void*), void* data, std::int64_t threads) {
  parallel_region()(body, data, static_cast<unsigned>(threads), 0);
}

}  // namespace detail

RLALGO_INLINE std::int64_t threads_here() {
  return at::in_parallel_region() || detail::parallel_region() == nullptr ? 1 : at::get_num_threads();
}

}  // namespace rlalgo::tensor
