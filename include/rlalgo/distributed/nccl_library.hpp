// NCCL and the CUDA runtime, loaded while the program runs: nothing is linked to them, and a machine without them misses
// nothing but this.
//
//   const auto library = NcclLibrary::load();     libnccl.so.2 and libcudart.so of the loader's paths, or those that the
//                                                 environment names: RLALGO_NCCL_LIBRARY, else VLLM_NCCL_SO_PATH (vLLM's
//                                                 own); RLALGO_CUDART_LIBRARY
//   nccl_trouble()                                why it cannot be, "" where it can
//
// From NCCL 2.14 on: older ones cannot be kept from waiting for ever.
//
// Errors: [rlalgo.distributed.15] a library is not there, or lacks a function; [.16] NCCL is too old; [.17] no GPU can be
// used.
#pragma once

#include <memory>
#include <string>

#include <rlalgo/distributed/nccl_abi.hpp>

namespace rlalgo::distributed {

// Paths, or names that the loader looks for; empty: the usual ones.
struct NcclPaths {
  std::string nccl, cudart;
};
[[nodiscard]] NcclPaths nccl_paths_of_environment();

class NcclLibrary {
 public:
  [[nodiscard]] static std::shared_ptr<const NcclLibrary> load(const NcclPaths& paths = nccl_paths_of_environment());

  [[nodiscard]] const abi::Nccl& nccl() const { return nccl_; }
  [[nodiscard]] const abi::Cuda& cuda() const { return cuda_; }
  [[nodiscard]] int version() const { return version_; }  // of NCCL: 22907 is 2.29.7
  [[nodiscard]] int devices() const { return devices_; }
  // Of a GPU, as PyTorch prints it: 8-4-4-4-12 hexadecimal digits.
  [[nodiscard]] std::string uuid(int device) const;

 private:
  NcclLibrary() = default;

  abi::Nccl nccl_;
  abi::Cuda cuda_;
  int version_ = 0, devices_ = 0;
};

// Why processes cannot meet over NCCL here; "" where they can.
[[nodiscard]] std::string nccl_trouble();

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/nccl_library_impl.hpp>
#endif
