// A device whose memory the host may not touch: what follows a pointer of its tensors dies of SIGSEGV. Every operator on it
// is computed on the CPU by ATen's fallback, so its numbers are the CPU's; what it shows is that a program keeps to
// operators and copies, and how many of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace rlalgo::support::far {

// Registers it with LibTorch, under the name "far", at the first call.
at::Device device();

struct Counts {
  std::int64_t operators = 0;   // launches, were it a GPU
  std::int64_t copies_in = 0;   // from the host
  std::int64_t copies_out = 0;  // to the host: each waits for the device
  std::int64_t scalars = 0;     // of these, single numbers that the host reads (item)
  std::int64_t waits = 0;       // of the host, for a stream or an event
  std::int64_t bytes_in = 0, bytes_out = 0;
  std::int64_t allocations = 0;
  std::int64_t given_back = 0;                  // how often unused memory was given back to the device
  std::int64_t kernels = 0;                     // launches of far_kernels.hpp
  std::int64_t replays = 0, nodes = 0;          // of graphs, and of what is in them, which is not counted otherwise
  std::map<std::string, std::int64_t> by_name;  // of operators
  std::map<std::int64_t, std::int64_t> rows;    // of products by LibTorch, by the number of their columns

  [[nodiscard]] Counts since(const Counts& before) const;
};
// So far; any thread.
[[nodiscard]] Counts counts();

// How much memory it says that it has; 0, the default: it does not say. More can be taken all the same.
void set_memory(std::size_t bytes);
// Taken now, and at most since the last call of reset_peak().
[[nodiscard]] std::size_t held_bytes();
[[nodiscard]] std::size_t peak_bytes();
void reset_peak();

// The next allocation fails as a GPU's does when it is full.
void fail_allocation();
// From then on, and until it is mended, everything fails, as on a GPU after a kernel has read an address that is not there.
void set_broken(bool broken);
[[nodiscard]] bool broken();

// f() while the host may reach all of the device's memory: a kernel of the host (far_kernels.hpp).
void run_kernel(const std::function<void()>& f);
void count_kernels(std::int64_t launches);

// The same without the order of streams: for what a stream does.
void reach(const std::function<void()>& f);

// The device's own stream works at once. Those of LibTorch's pool are streams of a CUDA runtime from here on, `library` (a handle of
// fake_nccl.cpp), which does what they are given asynchronously; an operator or copy on one begins when everything before it there is done,
// and one on the device's own stream when the events are over that it was told to wait for. Streams there are none before.
void use_streams(void* library);

// Between begin_graph() and end_graph() nothing is computed but recorded, as on a GPU whose stream is captured. What cannot be captured
// there fails: an allocation, a copy from or to the host, an operator that gives new memory.
struct Graph {
  std::vector<std::function<void()>> nodes;
};
void begin_graph();
[[nodiscard]] Graph end_graph();
void replay(const Graph& graph);

}  // namespace rlalgo::support::far
