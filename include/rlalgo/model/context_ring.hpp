// The ranks that share the tokens of one batch (context parallel), as a model sees them: a ring in which each rank hands
// tensors to the next one.
//
// All ranks call pass() in the same order, with tensors whose shapes each of them knows beforehand. What is computed between
// pass() and the call of what it returns hides the way.
// distributed/context_group.hpp makes one of a World.
#pragma once

#include <functional>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

class ContextRing {
 public:
  ContextRing() = default;
  ContextRing(const ContextRing&) = delete;
  ContextRing& operator=(const ContextRing&) = delete;
  virtual ~ContextRing() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Begins to send `out` to the next rank and to fill `in` from the one before; both are contiguous, and left alone until
  // the call of what is returned, which waits for both. Tensors without elements are not sent.
  [[nodiscard]] virtual std::function<void()> pass(const Tensor& out, const Tensor& in) = 0;

  // The rank whose tensors are here after so many passes.
  [[nodiscard]] int origin(int passes) const { return (rank() - passes % size() + size()) % size(); }
};

}  // namespace rlalgo::model
