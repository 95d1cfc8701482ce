// The door to ATen: the tensor type, and nothing that is slow to compile.
//
// Library headers include this file and single <ATen/ops/…> headers; torch/torch.h, torch::nn and torch::optim are
// never used (DESIGN: a file that includes torch/torch.h costs 17 s and 1.4 GB).
#pragma once

#include <ATen/core/Tensor.h>

namespace rlalgo::tensor {

using at::Tensor;

}  // namespace rlalgo::tensor
