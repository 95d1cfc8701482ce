// ~ and ~user at the beginning of a path, for paths that no shell has seen: those of a configuration file, or of an
// option written --key=~/x.
//
// Errors (usage): [rlalgo.os.9] ~user names no user of this machine.
#pragma once

#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>

namespace rlalgo::os {

// `path` with the home directory in place of its ~ (that of $HOME) or ~user; any other path as it is. `where`: of what.
[[nodiscard]] inline std::string expand_home(const std::string& path, const std::string& where = {}) {
  if (!path.starts_with('~')) return path;
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string user = path.substr(1, end - 1);
  const char* home = user.empty() ? std::getenv("HOME") : nullptr;
  std::vector<char> memory(16384);
  passwd entry = {};
  passwd* found = nullptr;
  if (home == nullptr || *home == '\0') {
    int error = ERANGE;
    while (error == ERANGE && memory.size() < (std::size_t{1} << 24)) {
      error = user.empty() ? ::getpwuid_r(::getuid(), &entry, memory.data(), memory.size(), &found)
                           : ::getpwnam_r(user.c_str(), &entry, memory.data(), memory.size(), &found);
      if (error == ERANGE) memory.resize(memory.size() * 2);
    }
    home = found != nullptr ? found->pw_dir : nullptr;
  }
  if (home == nullptr || *home == '\0')
    core::raise_usage("os", 9,
                      {.what = "there is no such home directory",
                       .found = path,
                       .where = where,
                       .remedy = "write ./" + path + " for a file of that name"});
  return home + path.substr(end);
}

}  // namespace rlalgo::os
