// The memory of this process, as Linux counts it.
#pragma once

#include <malloc.h>

#include <fstream>
#include <string>

namespace benchmarks {

// VmRSS or VmHWM (the highest VmRSS since reset_peak) in MB; 0 where there is no /proc.
inline double resident(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) / 1e3;
  return 0;
}

// Gives free memory back first, so that what comes is counted and not what was.
inline double reset_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5\n";
  return resident("VmRSS");
}

}  // namespace benchmarks
