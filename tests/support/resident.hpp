// How much memory this process has of the system.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace rlalgo::support {

// Bytes in memory now.
inline std::int64_t resident() {
  std::ifstream status("/proc/self/statm");
  std::int64_t all = 0, pages = 0;
  status >> all >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace rlalgo::support
