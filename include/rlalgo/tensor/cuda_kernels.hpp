// Where tensors meet the project's own CUDA kernels (cuda/kernels.hpp): which of them a caller has for a tensor, and launches on
// the current stream of its device.
//
// There are none where the program was built without nvcc. The environment variable RLALGO_CUDA_KERNELS says which are used: names with
// commas between, "all" or "none". Unset it is "none", as no card has run them: callers use ATen's operators. A machine with a GPU
// compares the two (scripts/device_check.sh).
//
// Errors: [rlalgo.tensor.15] a kernel could not be launched; (usage) [rlalgo.tensor.16] the variable names no kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/varlen_attention.hpp>

namespace rlalgo::tensor {

// Of a program that was not asked: whether its kernels are used.
inline constexpr std::string_view kernels_by_default = "none";

// Switches on what the list names and the others off (cuda::use); false where that is none. RLALGO_CUDA_KERNELS is such a list.
bool choose_kernels(std::string_view list);

// The program's kernels, null where there are none or none is used. Reads the variable at the first call.
[[nodiscard]] const cuda::Kernels* cuda_kernels();

// LibTorch's attention in one call, where the variable names it; null else.
[[nodiscard]] const VarlenAttention* flash_attention();

// The kernels that operations are given: a table, and the kind of device whose memory it reads. Tests give one that runs on
// the host (tests/support/host_kernels.cpp).
struct OwnKernels {
  const cuda::Kernels* table = cuda_kernels();
  at::DeviceType device = at::kCUDA;
  const VarlenAttention* varlen = flash_attention();

  // The table where it can compute with all of these: of that device, contiguous, of one dtype that is float32 or bfloat16;
  // null where it cannot, or where the kernel is switched off.
  template <class... T>
  [[nodiscard]] const cuda::Kernels* take(cuda::Kernel kernel, const Tensor& first, const T&... others) const {
    if (table == nullptr || !cuda::in_use(kernel) || !readable(first)) return nullptr;
    [[maybe_unused]] const auto fits = [&](const Tensor& x) {
      return !x.defined() || (readable(x) && x.scalar_type() == first.scalar_type());
    };
    return (fits(others) && ...) ? table : nullptr;
  }
  // Attention in one call, where it can compute with q and keys and values like it; null where it cannot, or is switched off.
  [[nodiscard]] const VarlenAttention* take_attention(const Tensor& q) const {
    const bool there = has_attention() && q.device().type() == device && q.is_contiguous() && varlen->takes(q);
    return there ? varlen : nullptr;
  }
  [[nodiscard]] bool has_attention() const { return varlen != nullptr && cuda::in_use(cuda::Kernel::flash_attention); }

 private:
  [[nodiscard]] bool readable(const Tensor& x) const {
    return x.device().type() == device && x.is_contiguous() &&
           (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  }
};

// Those of the program: what operations, engines and the log-prob head take where they are given none.
[[nodiscard]] OwnKernels& own_kernels();

[[nodiscard]] inline cuda::Element element_of(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? cuda::Element::bfloat16 : cuda::Element::float32;
}

namespace detail {
[[noreturn]] void refuse_launch(const cuda::Kernels& table, int error, cuda::Kernel kernel, const Tensor& x);
}

// Launches on the current stream of x's device; `x` also names the shape if that fails.
template <class A>
void launch(const cuda::Kernels& table, int (*launcher)(const A&, cuda::Stream), const A& arguments,
            cuda::Kernel kernel, const Tensor& x) {
  int error = 0;
  if (x.is_cuda()) {
    const c10::DeviceGuard guard(x.device());
    error = launcher(arguments, c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle());
  } else {
    error = launcher(arguments, nullptr);
  }
  if (error != 0) detail::refuse_launch(table, error, kernel, x);
}

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/cuda_kernels_impl.hpp>
#endif
