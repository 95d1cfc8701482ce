// The option of the benchmarks that count threads.
#pragma once

#include <ATen/Parallel.h>

#include <cstdlib>
#include <cstring>

namespace benchmarks {

// Takes --threads=N from the front of the arguments, for LibTorch; without it LibTorch's own number stays.
inline void take_threads(int& argc, char**& argv) {
  if (argc < 2 || std::strncmp(argv[1], "--threads=", 10) != 0) return;
  at::set_num_threads(std::atoi(argv[1] + 10));
  argv[1] = argv[0];
  --argc, ++argv;
}

}  // namespace benchmarks
