// LibTorch's flash attention whose gradient has the same bits each time.
#pragma once

#include <mutex>

#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/varlen_attention.hpp>

namespace rlalgo::tensor::detail {

// While it lives LibTorch takes deterministic forms where operators have them, which it decides for flash attention's gradient by whether
// those without one are to be refused (2.11). Such operators are only reported else: load_cuda().
class DeterministicForms {
 public:
  DeterministicForms();
  DeterministicForms(const DeterministicForms&) = delete;
  DeterministicForms& operator=(const DeterministicForms&) = delete;
  ~DeterministicForms();

 private:
  std::unique_lock<std::mutex> lock_;  // of one at a time, as LibTorch has one setting
  bool reports_;
};

// LibTorch's flash attention, with the same bits each time.
class RepeatableFlash final : public VarlenAttention {
 public:
  [[nodiscard]] bool takes(const Tensor& q) const override { return flash_.takes(q); }
  [[nodiscard]] VarlenOutput forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const VarlenSequences& sequences) const override {
    return flash_.forward(q, k, v, sequences);
  }
  [[nodiscard]] VarlenGradient backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                        const VarlenOutput& out, const VarlenSequences& sequences) const override {
    const DeterministicForms forms;
    return flash_.backward(grad, q, k, v, out, sequences);
  }

 private:
  FlashAttention flash_;
};

}  // namespace rlalgo::tensor::detail
