// How many files and sockets the process may have open: systems start programs with 1,024 and allow more.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

namespace rlalgo::os {

// Raises the limit in force towards `wanted`, as far as the process may; the limit afterwards.
inline std::uint64_t raise_open_files(std::uint64_t wanted = 65536) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  if (files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= wanted) return files.rlim_cur;
  const rlim_t before = files.rlim_cur;
  files.rlim_cur = files.rlim_max == RLIM_INFINITY ? wanted : std::min<rlim_t>(files.rlim_max, wanted);
  return files.rlim_cur > before && ::setrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : before;
}

}  // namespace rlalgo::os
