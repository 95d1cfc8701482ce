// How many processors this process may really use: more threads than that only take turns.
//
// The fewest of what the scheduler allows (affinity: taskset, cpusets) and of the processor time that the control groups
// of the process grant (`docker run --cpus 1.5`, a Kubernetes limit), rounded up. std::thread::hardware_concurrency()
// and OpenMP know the first only.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace rlalgo::os {

namespace detail {

inline constexpr double no_quota = std::numeric_limits<double>::infinity();

// Processors per `period` that a text like "150000 100000" grants; "max", −1 and what cannot be read grant all.
[[nodiscard]] inline double quota_of(const std::string& text) {
  std::istringstream in(text);
  double quota = 0.0, period = 0.0;
  if (!(in >> quota >> period) || !(quota > 0.0) || !(period > 0.0)) return no_quota;
  return quota / period;
}

[[nodiscard]] inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

// The least quota from `group` up to the root of the hierarchy under `mount`; inside of a container the path of the
// group may be that of the host, then the root is the container's own.
[[nodiscard]] inline double quota_under(const std::filesystem::path& mount, const std::filesystem::path& group,
                                        bool unified) {
  const auto read = [&](const std::filesystem::path& at) {
    if (unified) return quota_of(text_of(at / "cpu.max"));
    return quota_of(text_of(at / "cpu.cfs_quota_us") + " " + text_of(at / "cpu.cfs_period_us"));
  };
  double least = read(mount);
  std::filesystem::path at = mount;
  for (const auto& part : group.relative_path()) {
    if (part == "..") break;  // of a group outside of this namespace nothing can be seen
    at /= part;
    least = std::min(least, read(at));
  }
  return least;
}

// `membership`: the text of /proc/self/cgroup, lines of number:controllers:path. `root`: where hierarchies are mounted.
[[nodiscard]] inline double cgroup_quota(const std::string& membership, const std::filesystem::path& root) {
  double least = no_quota;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers == ",,")
      least = std::min(least, quota_under(root, group, true));
    else if (controllers.find(",cpu,") != std::string::npos)
      for (const char* mount : {"cpu", "cpu,cpuacct"}) least = std::min(least, quota_under(root / mount, group, false));
  }
  return least;
}

// Processors that the scheduler may put this thread on; 0 = not known.
[[nodiscard]] inline int allowed_processors() {
#if defined(__linux__)
  for (std::size_t most = 1024; most <= (1U << 20U); most *= 4) {
    std::vector<cpu_set_t> sets(most / CPU_SETSIZE);
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, sets.data()) == 0) return CPU_COUNT_S(bytes, sets.data());
  }
#endif
  return 0;
}

}  // namespace detail

// At least 1. Asks the system at every call.
[[nodiscard]] inline int usable_processors() {
  int processors = detail::allowed_processors();
  if (processors < 1) processors = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = detail::cgroup_quota(detail::text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (quota < static_cast<double>(processors)) processors = static_cast<int>(std::ceil(quota));
  return std::max(1, processors);
}

}  // namespace rlalgo::os
