// A device whose memory the host may not touch: what follows a pointer of its tensors dies of SIGSEGV. Every operator on it
// is computed on the CPU by ATen's fallback, so its numbers are the CPU's; what it shows is that a program keeps to
// operators and copies, and how many of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <c10/core/Device.h>

namespace rlalgo::support::far {

// Registers it with LibTorch, under the name "far", at the first call.
at::Device device();

struct Counts {
  std::int64_t operators = 0;   // launches, were it a GPU
  std::int64_t copies_in = 0;   // from the host
  std::int64_t copies_out = 0;  // to the host: each waits for the device
  std::int64_t scalars = 0;     // of these, single numbers that the host reads (item)
  std::int64_t bytes_in = 0, bytes_out = 0;
  std::map<std::string, std::int64_t> by_name;  // of operators

  [[nodiscard]] Counts since(const Counts& before) const;
};
// So far; any thread.
[[nodiscard]] Counts counts();

// The next allocation fails as a GPU's does when it is full.
void fail_allocation();

}  // namespace rlalgo::support::far
