// Values of the host on their way to a device: all that a micro-batch needs in one block of memory, in one copy.
//
//   HostBlock block(options);                 of the device
//   const Tensor ids = block.add(values);     its handle, without values
//   …
//   block.send();                             one copy; now every handle has its values
//
// To a GPU the copy is from pinned memory, so that the host does not wait for the device. Handles are tensors of their own over memory
// that all share: each has its own version, and none may be used before send().
//
// Who makes a block may give it to others, which add what they need themselves and send it (model::ScoreOptions::block).
//
// Errors: [rlalgo.tensor.17] a tensor is added to a block that was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

class HostBlock {
 public:
  // `numbers`: the device, and the dtype of what add_numbers() is given.
  explicit HostBlock(const at::TensorOptions& numbers) : numbers_(numbers) {}

  [[nodiscard]] at::Device device() const { return numbers_.device(); }
  [[nodiscard]] at::ScalarType number_type() const { return c10::typeMetaToScalarType(numbers_.dtype()); }
  [[nodiscard]] bool sent() const { return sent_; }

  // The handle of a tensor of the host: its shape and dtype.
  [[nodiscard]] Tensor add(const Tensor& host) {
    if (sent_)
      core::raise("tensor", 17,
                  {.what = "a tensor is added to a block of host values that was sent",
                   .remedy = "add it before send(), or make another block"});
    const Tensor values = host.contiguous();
    constexpr std::size_t alignment = 64;  // of what a kernel may read at once
    const std::size_t at = (bytes_ + alignment - 1) / alignment * alignment;
    bytes_ = at + values.nbytes();
    Tensor handle = empty({0}, at::TensorOptions().dtype(values.scalar_type()).device(device()));
    parts_.push_back({at, values, handle});
    return handle;
  }
  // [N], in the dtype of T.
  template <class T>
  [[nodiscard]] Tensor add(const std::vector<T>& values) {
    return add(from_values(values, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value)));
  }
  // [N], rounded to the dtype of numbers, or to another one.
  [[nodiscard]] Tensor add_numbers(const std::vector<double>& values) { return add_numbers(values, number_type()); }
  [[nodiscard]] Tensor add_numbers(const std::vector<double>& values, at::ScalarType type) {
    return add(from_values(values, at::TensorOptions().dtype(type)));
  }

  void send() {
    if (std::exchange(sent_, true) || parts_.empty()) return;
    auto options = at::TensorOptions().dtype(at::kByte);
    if (device().is_cuda()) options = options.pinned_memory(true);
    const Tensor here = empty({static_cast<std::int64_t>(bytes_)}, options);
    auto* const memory = static_cast<std::byte*>(here.mutable_data_ptr());
    for (const Part& part : parts_)
      if (part.values.nbytes() > 0) std::memcpy(memory + part.at, part.values.const_data_ptr(), part.values.nbytes());
    const Tensor there = here.to(device(), /*non_blocking=*/device().is_cuda());
    for (Part& part : parts_)
      part.handle.set_(there.storage(), static_cast<std::int64_t>(part.at / part.values.itemsize()),
                       part.values.sizes(), part.values.strides());
    parts_.clear();
  }

 private:
  struct Part {
    std::size_t at = 0;
    Tensor values, handle;
  };

  at::TensorOptions numbers_;
  std::vector<Part> parts_;
  std::size_t bytes_ = 0;
  bool sent_ = false;
};

}  // namespace rlalgo::tensor
