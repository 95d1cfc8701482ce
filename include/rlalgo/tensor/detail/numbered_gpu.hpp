// A GPU by its number, of so many that are there.
//
// Errors: [rlalgo.tensor.13] a GPU that is not there.
#pragma once

#include <string>

#include <c10/core/Device.h>

#include <rlalgo/core/error.hpp>

namespace rlalgo::tensor::detail {

inline c10::Device numbered_gpu(int number, int count, const std::string& where) {
  if (number >= count)
    core::raise(
        "tensor", 13,
        {.what = "there is no such GPU",
         .found = "cuda:" + std::to_string(number),
         .expected = count == 1 ? "cuda:0, the only one" : "cuda:0 to cuda:" + std::to_string(count - 1),
         .where = where,
         .remedy =
             "look at nvidia-smi and CUDA_VISIBLE_DEVICES; each rank of a machine takes the GPU of its LOCAL_RANK: "
             "start no more ranks there than it has GPUs, or set device: cpu"});
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(number)};
}

}  // namespace rlalgo::tensor::detail
