// Definitions of user_function.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/detail/dataset_transform_source.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/user_function.hpp>

namespace rlalgo::remote {

namespace detail {

// "a/b" of "a.b.name"; empty: the name has no module.
RLALGO_INLINE std::string module_path(const std::string& function) {
  const std::size_t dot = function.rfind('.');
  if (dot == std::string::npos) return {};
  std::string out = function.substr(0, dot);
  std::replace(out.begin(), out.end(), '.', '/');
  return out;
}

RLALGO_INLINE std::vector<std::filesystem::path> python_path_directories() {
  std::vector<std::filesystem::path> out;
  const char* variable = std::getenv("PYTHONPATH");
  std::string_view rest = variable != nullptr ? variable : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) out.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

// Whether a module with this text may have `name` at all: a name that is bound stands in it, unless it is bound by
// something that names nothing.
RLALGO_INLINE bool may_define(const std::string& text, const std::string& name) {
  for (const std::string_view unnamed : {"import *", "__getattr__", "globals", "vars(", "exec", "setattr", "__dict__"})
    if (text.find(unnamed) != std::string::npos) return true;
  return text.find(name) != std::string::npos;
}

}  // namespace detail

RLALGO_INLINE std::filesystem::path module_file(const std::string& function,
                                                const std::vector<std::filesystem::path>& directories) {
  const std::string module = detail::module_path(function);
  if (module.empty() || module.front() == '/' || module.find("//") != std::string::npos) return {};
  std::error_code absent;
  for (const auto& list : {directories, detail::python_path_directories()})
    for (const auto& directory : list)
      for (const char* ending : {"/__init__.py", ".py"})
        if (auto file = directory / (module + ending); std::filesystem::is_regular_file(file, absent)) return file;
  return {};
}

RLALGO_INLINE bool user_has(const std::string& function, const std::vector<std::filesystem::path>& directories,
                            const std::string& python) {
  const std::filesystem::path file = module_file(function, directories);
  if (file.empty()) return false;
  constexpr std::uint64_t most = std::uint64_t{4} << 20U;  // bytes of a module
  const auto read = os::read_regular_file(file, most);
  if (read.problem.empty() && !detail::may_define(read.text, function.substr(function.rfind('.') + 1))) return false;
  detail::PythonProcess process;
  if (process.start(python, detail::dataset_transform_source) != 0) return true;
  constexpr double seconds = 120.0;  // to start Python and import the module
  const auto answer =
      process.ask({{"op", "has"}, {"function", function}, {"paths", detail::module_paths(directories)}}, seconds);
  const auto* said = std::get_if<detail::PythonProcess::Json>(&answer);
  return said == nullptr || said->value("has", true);
}

RLALGO_INLINE std::string absent_in(const std::string& function,
                                    const std::vector<std::filesystem::path>& directories) {
  std::string places;
  for (const auto& directory : directories) places += (places.empty() ? "" : ", ") + directory.string();
  return "no file " + detail::module_path(function) + ".py in " + places + " has a function of that name";
}

}  // namespace rlalgo::remote
