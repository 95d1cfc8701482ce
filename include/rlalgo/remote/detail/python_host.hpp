// How a Python process of ours is started. Its program is python/host.py, which answers questions on descriptor 3, and
// one of the programs beside it (scripts/embed_python.py makes the headers *_source.hpp of them).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/remote/detail/host_source.hpp>

namespace rlalgo::remote::detail {

// The command that runs `body` in `python`: a program, or empty for $RLALGO_PYTHON, else python3 from PATH.
[[nodiscard]] inline std::vector<std::string> python_command(const std::string& python, const std::string& body) {
  const char* chosen = std::getenv("RLALGO_PYTHON");
  const std::string program = !python.empty() ? python : chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  return {program, "-u", "-c", std::string(host_source) + "\n\n" + body};
}

// Where modules are found first, as the questions name it; none given: the working directory.
[[nodiscard]] inline std::vector<std::string> module_paths(std::vector<std::filesystem::path> given) {
  if (given.empty()) given.push_back(std::filesystem::current_path());
  std::vector<std::string> out;
  for (const auto& path : given) out.push_back(std::filesystem::absolute(path).lexically_normal().string());
  return out;
}

}  // namespace rlalgo::remote::detail
