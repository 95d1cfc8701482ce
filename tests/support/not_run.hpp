// What this machine cannot test: a case that needs an instruction set, Gloo, a peer or a GPU says so, and is counted as not
// run, by name and with the reason, never as passed (scripts/run_tests.py). Call these from the thread of the test case.
#pragma once

#include <string>

namespace rlalgo::support {

// Ends the test case here. It is not run, or run in part where something was checked before.
[[noreturn]] void not_run(const std::string& why);

// The test case goes on without a part of it.
void not_run_in_part(const std::string& what_and_why);

// not_run(why) unless what the test case needs is there.
inline void needs(bool there, const std::string& why) {
  if (!there) not_run(why);
}

inline constexpr const char* without_gloo = "compiled without Gloo (libgloo-dev)";

}  // namespace rlalgo::support
