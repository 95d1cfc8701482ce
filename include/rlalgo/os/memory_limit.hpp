// How much memory this process may have at most: of the machine, of its control groups, and of its address space.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace rlalgo::os {

namespace detail {

// A number of bytes in a file of the system; "max", and what cannot be read, is `otherwise`.
[[nodiscard]] inline std::uint64_t bytes_in(const std::string& file, std::uint64_t otherwise) {
  std::ifstream in(file);
  std::uint64_t out = 0;
  return in >> out && out > 0 ? out : otherwise;
}

}  // namespace detail

// Bytes. Asks the system at every call.
[[nodiscard]] inline std::uint64_t memory_limit() {
  const auto pages = static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_PHYS_PAGES)));
  std::uint64_t out = pages * static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_PAGESIZE)));
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    out = std::min(out, detail::bytes_in(file, out));
  if (rlimit space{}; ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    out = std::min<std::uint64_t>(out, space.rlim_cur);
  return out;
}

}  // namespace rlalgo::os
