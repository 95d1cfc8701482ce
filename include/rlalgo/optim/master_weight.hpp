// A trained parameter in the two precisions of mixed training: what the model computes with, and what is updated.
//
//   master ← update(master, float32(gradient));   value ← round(master)
//
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740, section 3.1: an update smaller than half
// the spacing of bfloat16 (2⁻⁹ of a weight) would be lost if it were added to the rounded weight. A value in bfloat16
// or float16 has a master of its own in float32; any other is its own master, in the same memory, at no cost.
#pragma once

#include <utility>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

using tensor::Tensor;

class MasterWeight {
 public:
  explicit MasterWeight(Tensor value) : value_(std::move(value)), master_(value_.detach()) {
    const c10::ScalarType type = value_.scalar_type();
    separate_ = type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half;
    if (separate_) master_ = master_.to(c10::ScalarType::Float);
  }

  // Whether the master is memory of its own, which a checkpoint has to hold.
  [[nodiscard]] bool separate() const { return separate_; }
  [[nodiscard]] const Tensor& value() const { return value_; }    // requires grad
  [[nodiscard]] const Tensor& master() const { return master_; }  // without graph

  // The gradient in the master's precision, contiguous; undefined when there is none.
  [[nodiscard]] Tensor gradient() const {
    const Tensor& gradient = value_.grad();
    return gradient.defined() ? gradient.to(master_.scalar_type()).contiguous() : gradient;
  }

  // Rounds the master into the value, in place.
  void publish() const {
    if (separate_) value_.detach().copy_(master_);
  }

 private:
  Tensor value_, master_;
  bool separate_ = false;
};

}  // namespace rlalgo::optim
