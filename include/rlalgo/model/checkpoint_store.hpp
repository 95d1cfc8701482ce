// Where a pass with gradient checkpointing keeps the inputs of its layers until the backward pass computes the layers again.
//
//   device   where they were computed
//   host     in the memory of this machine, pinned; copied while the device computes, brought back a layer ahead of the one that is computed.
//            Of a model on the CPU they lie there anyway: nothing is copied
//   disk     in a file without a name in `directory`, written as they are computed and read a layer at a time
//
// The numbers are the same: what is brought back has the bits that were given.
// Shapes: any contiguous tensors. Errors: [rlalgo.model.51] the file cannot be made, written or read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/side_stream.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

enum class CheckpointMemory { device, host, disk };

struct CheckpointPlace {
  CheckpointMemory memory = CheckpointMemory::device;
  std::filesystem::path directory = {};  // of the file; empty: the system's for temporary files
};

class CheckpointStore {
 public:
  // For tensors of that device.
  CheckpointStore(CheckpointPlace place, at::Device device)
      : place_(std::move(place)), device_(device), side_(device) {}
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;
  RLALGO_INLINE ~CheckpointStore();

  RLALGO_INLINE void push(const Tensor& x);
  // The last one that was pushed.
  [[nodiscard]] RLALGO_INLINE Tensor pop();

 private:
  struct Kept {
    Tensor value;                       // on the device, or on the host
    std::vector<std::int64_t> sizes;    // of what is on disk
    at::ScalarType type = at::kFloat;   //
    std::size_t offset = 0, bytes = 0;  //
    Tensor back;                        // on the device again
    std::optional<c10::Event> copied = {}, brought = {};
  };

  RLALGO_INLINE void write(Kept& kept, const Tensor& x);
  [[nodiscard]] RLALGO_INLINE Tensor read(const Kept& kept) const;
  RLALGO_INLINE void bring(Kept& kept);

  CheckpointPlace place_;
  at::Device device_;
  tensor::SideStream side_;
  std::vector<Kept> kept_;
  int file_ = -1;
  std::size_t end_ = 0;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/checkpoint_store_impl.hpp>
#endif
