// Tensors of a device that the host reads together: one copy and one wait for each device, whatever their number.
//
//   Reading reading;
//   reading.add(loss);  reading.add(margins);  …
//   reading.fetch();                             loss, margins, … are tensors of the host now
//
// Shapes and dtypes stay what they are, values to the bit; no graph. What is undefined or lies in host memory already stays as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

class Reading {
 public:
  // `x` lives, in its place, until fetch().
  void add(Tensor& x) {
    if (x.defined() && !x.is_cpu()) far_[x.device().str()].push_back(&x);
  }

  void fetch() {
    for (auto& [device, tensors] : std::exchange(far_, {})) {
      std::vector<Tensor> bytes;
      for (const Tensor* x : tensors) bytes.push_back(x->detach().reshape({-1}).view(at::kByte));
      const Tensor there = bytes.size() == 1 ? bytes.front() : concatenate(bytes, 0);
      auto options = at::TensorOptions().dtype(at::kByte);
      if (there.is_cuda()) options = options.pinned_memory(true);
      const Tensor here = empty(there.sizes(), options);
      here.copy_(there);
      const auto* next = static_cast<const std::byte*>(here.const_data_ptr());
      for (Tensor* x : tensors) {
        const Tensor copy = empty(x->sizes(), at::TensorOptions().dtype(x->scalar_type()));
        if (x->nbytes() > 0) std::memcpy(copy.mutable_data_ptr(), next, x->nbytes());
        next += x->nbytes();
        *x = copy;
      }
    }
  }

 private:
  std::map<std::string, std::vector<Tensor*>> far_;  // by device
};

}  // namespace rlalgo::tensor
