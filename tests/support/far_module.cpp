// The far device (far_device.hpp) for a program that knows nothing of it: loaded in front of it (LD_PRELOAD), this file registers the device
// under its name, `far`, and lets the stand-in for NCCL that RLALGO_NCCL_LIBRARY names reach the device's memory.
// FAR_COUNTS: a file to which every process adds a line at its end, what it has asked of the device.
// After a signal SIGUSR2 the device fails whatever it is asked (far::set_broken).
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "far_device.hpp"

namespace {

namespace far = rlalgo::support::far;
using Access = void (*)(void (*)(void*), void*);

void access(void (*task)(void*), void* given) {
  far::reach([&] { task(given); });
}

void write_counts() {
  const char* const file = std::getenv("FAR_COUNTS");
  if (file == nullptr || *file == '\0') return;
  const far::Counts c = far::counts();
  const char* const rank = std::getenv("RANK");
  if (std::FILE* const out = std::fopen(file, "a"); out != nullptr) {
    std::fprintf(out,
                 "{\"rank\": %s, \"operators\": %lld, \"copies_in\": %lld, \"copies_out\": %lld, \"scalars\": %lld, "
                 "\"waits\": %lld}\n",
                 rank == nullptr ? "-1" : rank, static_cast<long long>(c.operators),
                 static_cast<long long>(c.copies_in), static_cast<long long>(c.copies_out),
                 static_cast<long long>(c.scalars), static_cast<long long>(c.waits));
    std::fclose(out);
  }
}

[[maybe_unused]] const bool registered = [] {
  (void)far::device();
  std::signal(SIGUSR2, [](int) { far::set_broken(true); });
  const char* const nccl = std::getenv("RLALGO_NCCL_LIBRARY");
  if (nccl != nullptr && *nccl != '\0')
    if (void* const library = ::dlopen(nccl, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      if (auto* const through = reinterpret_cast<void (*)(Access)>(::dlsym(library, "fake_cuda_access_through"));
          through != nullptr) {
        through(&access);
        far::use_streams(library);
      }
    }
  return true;
}();

}  // namespace

// How the program ends.
extern "C" [[noreturn]] void _Exit(int status) {
  write_counts();
  ::_exit(status);
}
