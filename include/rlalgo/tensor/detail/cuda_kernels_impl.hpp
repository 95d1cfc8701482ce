// Definitions of cuda_kernels.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include <ATen/Context.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/detail/repeatable_flash.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE bool choose_kernels(std::string_view list) {
  std::array<bool, cuda::kernel_names.size()> chosen = {};
  const bool all = list == "all", none = list == "none";
  for (std::string_view rest = all || none ? std::string_view() : list; !all && !none;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const auto at = std::find(cuda::kernel_names.begin(), cuda::kernel_names.end(), name);
    if (at == cuda::kernel_names.end()) {
      std::string names;
      for (const std::string_view one : cuda::kernel_names) names += ", " + std::string(one);
      core::raise_usage("tensor", 16,
                        {.what = "there is no CUDA kernel of this name",
                         .found = "'" + std::string(name) + "'",
                         .expected = "all, none, or a list of " + names.substr(2),
                         .where = "the environment variable RLALGO_CUDA_KERNELS",
                         .remedy = "unset it, and LibTorch's operators compute"});
    }
    chosen[static_cast<std::size_t>(at - cuda::kernel_names.begin())] = true;
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) cuda::use(static_cast<cuda::Kernel>(i), all || chosen[i]);
  return !none;
}

namespace detail {

inline bool kernels_are_used() {
  static const bool used = [] {
    const char* const list = std::getenv("RLALGO_CUDA_KERNELS");
    const std::string_view chosen = list == nullptr ? kernels_by_default : std::string_view(list);
    return chosen != "none" && choose_kernels(chosen);  // none: those that a test gives stay on
  }();
  return used;
}

}  // namespace detail

RLALGO_INLINE detail::DeterministicForms::DeterministicForms() {
  static std::mutex mutex;
  lock_ = std::unique_lock(mutex);
  at::Context& context = at::globalContext();
  reports_ = context.deterministicAlgorithmsWarnOnly();
  context.setDeterministicAlgorithms(context.deterministicAlgorithms(), /*warn_only=*/false);
}

RLALGO_INLINE detail::DeterministicForms::~DeterministicForms() {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(context.deterministicAlgorithms(), reports_);
}

RLALGO_INLINE const cuda::Kernels* cuda_kernels() { return detail::kernels_are_used() ? cuda::compiled() : nullptr; }

RLALGO_INLINE const VarlenAttention* flash_attention() {
  static const detail::RepeatableFlash flash;
  return detail::kernels_are_used() && cuda::in_use(cuda::Kernel::flash_attention) ? &flash : nullptr;
}

RLALGO_INLINE OwnKernels& own_kernels() {
  static OwnKernels kernels;
  return kernels;
}

RLALGO_INLINE void detail::refuse_launch(const cuda::Kernels& table, int error, cuda::Kernel kernel, const Tensor& x) {
  const std::string name(cuda::kernel_names[static_cast<std::size_t>(kernel)]);
  std::string shape = "[";
  for (const std::int64_t size : x.sizes()) shape += (shape.size() > 1 ? ", " : "") + std::to_string(size);
  // A device without streams of its own has one.
  const c10::StreamId stream =
      x.is_cuda() ? c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).id() : 0;
  constexpr int no_image = 209;  // cudaErrorNoKernelImageForDevice
  const std::string why = error == no_image ? "these kernels are for GPUs of capability 8.0 and newer"
                                            : "an earlier kernel may have failed: CUDA_LAUNCH_BLOCKING=1 names it";
  core::raise("tensor", 15,
              {.what = "the CUDA kernel " + name + " could not be launched",
               .found = std::string(table.error_text(error)) + " (CUDA error " + std::to_string(error) + ")",
               .where = shape + "] on " + x.device().str() + ", stream " + std::to_string(stream),
               .remedy = why + "; without " + name + " in RLALGO_CUDA_KERNELS LibTorch's operators compute instead"});
}

}  // namespace rlalgo::tensor
