// A directory that lives as long as one test, and the check that a call fails with a certain numbered error.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>

namespace rlalgo::support {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "rlalgo-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes `text` to a file below the directory and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

// An environment variable for the length of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    ::setenv(name, value.c_str(), 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() {
    if (had_)
      ::setenv(name_, old_.c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

// What `call` raises: "room.number: the whole message", or "nothing".
template <class Call>
std::string raised_by(Call&& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return error.room() + "." + std::to_string(error.number()) + ": " + error.what();
  }
  return "nothing";
}

// "room.number" of what it raises.
template <class Call>
std::string number_raised_by(Call&& call) {
  const std::string raised = raised_by(std::forward<Call>(call));
  return raised.substr(0, raised.find(':'));
}

// The first of `pieces` that `text` does not hold, with the text; "" when it holds all.
inline std::string lacks(const std::string& text, const std::vector<std::string>& pieces) {
  for (const std::string& piece : pieces)
    if (text.find(piece) == std::string::npos) return "\"" + piece + "\" in " + text;
  return {};
}

// The exit status that `call` asks for; 0 when it raises nothing.
template <class Call>
int exit_code_of(Call&& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return error.exit_code();
  }
  return 0;
}

}  // namespace rlalgo::support
