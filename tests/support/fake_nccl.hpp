// The module of fake_nccl.cpp in the place of NCCL and of the CUDA runtime, and the faults that it can be told to have.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <rlalgo/distributed/nccl_library.hpp>

namespace rlalgo::support {

extern const char* const fake_nccl;  // its file

// A variable of the environment, for a while. No other thread may ask for one at its beginning and end.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str()); before != nullptr)
      before_ = std::make_unique<std::string>(before);
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    if (before_ != nullptr)
      ::setenv(name_.c_str(), before_->c_str(), 1);
    else
      ::unsetenv(name_.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
  std::unique_ptr<std::string> before_;
};

// Everything that the library does to memory of the GPU is done within `through`; null: at once.
inline void access_through(void (*through)(void (*)(void*), void*)) {
  void* const library = ::dlopen(fake_nccl, RTLD_NOW);
  reinterpret_cast<void (*)(void (*)(void (*)(void*), void*))>(::dlsym(library, "fake_cuda_access_through"))(through);
}

inline std::shared_ptr<const distributed::NcclLibrary> fake_library() {
  return distributed::NcclLibrary::load({.nccl = fake_nccl, .cudart = fake_nccl});
}

}  // namespace rlalgo::support
