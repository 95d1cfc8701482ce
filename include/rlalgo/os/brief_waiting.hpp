// For programs: threads of OpenMP that wait spin for a fraction of a millisecond and then sleep.
//
// LibTorch's OpenMP reads from the environment how its threads wait, once, when it is loaded: long before main(). Where
// nothing is said there a thread that waits spins for milliseconds, and takes the processor from threads that have work, its
// own team included. One that sleeps at once pays some 50 µs of waking up in every operation, and a step has ten thousands of them.
// wait_briefly() starts the program again in its own place, with GOMP_SPINCOUNT=5000 added to the environment (children inherit
// it): 0.1 to 0.3 ms. What the user has set, OMP_WAIT_POLICY or GOMP_SPINCOUNT, stays, and
// then nothing is restarted. Where the program cannot be started again (no /proc) it goes on as it is.
//
// One line in one source file of a program (not of a shared library) calls it before LibTorch's own start, which makes
// the restart cost some 20 ms of processor time; from main() it costs a second start:
//
//   [[gnu::section(".preinit_array"), gnu::used]] constexpr auto first = rlalgo::os::wait_briefly;
//
// At that time nothing of the C++ library is ready, so it asks the kernel only. A debugger follows the restart as any
// exec; valgrind needs --trace-children=yes, or the variable set.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace rlalgo::os {

// The arguments of main(). Returns where nothing had to be restarted.
inline void wait_briefly(int /*argc*/, char** argv, char** environment) {
  constexpr std::size_t most = 8192;  // variables; with more of them nothing is changed
  static char setting[] = "GOMP_SPINCOUNT=5000";
  static char* changed[most + 2];
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == most) return;
    for (const char* own : {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT="})
      if (std::strncmp(environment[count], own, std::strlen(own)) == 0) return;
    changed[count] = environment[count];
  }
  changed[count] = setting;
  changed[count + 1] = nullptr;
  ::execve("/proc/self/exe", argv, changed);
}

}  // namespace rlalgo::os
