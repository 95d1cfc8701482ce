// The ranks of a run. One rank is the default; a process group behind the same interface is a later addition.
#pragma once

#include <span>
#include <vector>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed {

using tensor::Tensor;

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int rank() const { return 0; }
  [[nodiscard]] virtual int size() const { return 1; }
  // Element-wise sum over ranks, in place.
  virtual void sum(std::span<double> /*values*/) {}
  // Sum (never mean) of gradients over ranks, in place.
  virtual void sum(std::span<Tensor> /*tensors*/) {}
};

}  // namespace rlalgo::distributed
