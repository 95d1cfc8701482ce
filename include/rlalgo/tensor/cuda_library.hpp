// CUDA, taken in while the program runs: one binary serves machines with and without a GPU.
//
// The program is linked to LibTorch's CPU half alone. find_cuda_driver() asks the driver (libcuda.so.1) which GPUs there are and
// starts nothing on them. load_cuda() adds LibTorch's CUDA half, libtorch_cuda.so: the one in the folder of the
// libtorch_cpu.so that runs, so that both are of one build, or the file that RLALGO_TORCH_CUDA names. After it ATen's
// operators and allocators know CUDA.
//
// Settings that load_cuda() makes, so that a run repeats itself to the bit on the same GPU and build: deterministic
// algorithms (index_add_ sorts instead of adding by atomics), a fixed workspace for cuBLAS (CUBLAS_WORKSPACE_CONFIG,
// unless it is set), sums of bfloat16 products in float32 throughout.
//
// Errors: [rlalgo.tensor.8] there is no NVIDIA driver, or no GPU that this process may use; [.9] the driver is too old
// for this LibTorch; [.10] libtorch_cuda.so cannot be loaded, or is loaded too late; [.11] a GPU is older than LibTorch's kernels.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace rlalgo::tensor {

struct CudaDriver {
  struct Gpu {
    std::string name;
    int major = 0, minor = 0;  // compute capability
    std::size_t bytes = 0;     // of its memory
  };
  int version = 0;        // of CUDA that it serves, at most: 13000 is 13.0
  std::vector<Gpu> gpus;  // those that this process may use (CUDA_VISIBLE_DEVICES)
  std::string problem;    // why there is none, if the driver said so
};

// Nothing: this machine has no driver. `library`: its file.
[[nodiscard]] std::optional<CudaDriver> find_cuda_driver(const std::string& library = "libcuda.so.1");

// The LibTorch that runs: its folder, and what its version file says (empty where there is none: an archive of LibTorch
// without Python).
struct TorchBuild {
  std::string folder;   // of libtorch_cpu.so
  std::string version;  // "2.11.0+cu130"
  std::string cuda;     // "13.0"; empty: built without CUDA, or not known
};
[[nodiscard]] TorchBuild torch_build();

// The same, read from the text of a wheel's version.py.
[[nodiscard]] TorchBuild torch_build_of(const std::string& folder, const std::string& version_file);

// "13.0" of 13000.
[[nodiscard]] std::string cuda_version_text(int version);

// Raises what stands in the way of computing on `driver` with `build`.
void check_cuda_driver(const std::optional<CudaDriver>& driver, const TorchBuild& build);

// Raises where LibTorch does not know of its CUDA half though it is loaded: it looks for it once, at the first backward pass, seed
// (at::manual_seed) or allocation on a GPU of the process.
void check_cuda_is_seen(const TorchBuild& build);

// Loads CUDA; how many GPUs there are, one at least. Later calls find it loaded. Any thread; before the first backward pass and seed of the process.
int load_cuda();

[[nodiscard]] bool cuda_is_loaded();

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/cuda_library_impl.hpp>
#endif
