// Whether a dotted name means a function of the user's own files.
//
// `a.b.name` lies in a/b.py or a/b/__init__.py below the first directory that has one of them: the directories given,
// then those of PYTHONPATH. What has a built-in of the same name is the user's wherever such a file has the name.
//
// Python says whether a module has a name, in a process of its own; it is not asked where the text of the file can
// define no such name. A file that cannot be imported, and a Python that cannot be started, count as having it: the
// error is then of the call that loads the function.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rlalgo::remote {

// The file of the module of `function`; empty: there is none.
[[nodiscard]] std::filesystem::path module_file(const std::string& function,
                                                const std::vector<std::filesystem::path>& directories);

// Whether that file has the name. `python`: the program, as in PythonConfig.
[[nodiscard]] bool user_has(const std::string& function, const std::vector<std::filesystem::path>& directories,
                            const std::string& python = {});

// "no file rewards.py in /a, /b has a function of that name"
[[nodiscard]] std::string absent_in(const std::string& function, const std::vector<std::filesystem::path>& directories);

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/user_function_impl.hpp>
#endif
