// The trials of kernels on the far device: those of the host agree, and one with a mistake does not.
#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include <rlalgo/assembly/kernel_trials.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using cuda::Kernel;

namespace {

// A launch that does nothing.
template <class A>
int nothing(const A&, cuda::Stream) {
  return 0;
}

// The table that `change` makes of the host's kernels, while one lives.
class WithChanged {
 public:
  template <class F>
  explicit WithChanged(F&& change) : table_(*tensor::own_kernels().table) {
    change(table_);
    tensor::own_kernels().table = &table_;
  }

 private:
  support::far::WithKernels kernels_;
  cuda::Kernels table_;
};

bool agrees(assembly::KernelTrials& trials, Kernel kernel) {
  try {
    return trials(std::span(&kernel, 1)).agrees;
  } catch (const std::exception&) {  // of what a kernel did not write
    return false;
  }
}

}  // namespace

TEST_CASE("kernels of the host agree with operators, each and together") {
  const support::far::WithKernels kernels;
  const rlalgo::support::ScratchDirectory dir;
  assembly::KernelTrials trials(support::far::device(), dir.path(), assembly::smallest_kernel_trial);
  const std::vector<Kernel> all = assembly::kernels_there();
  CHECK(all.size() == cuda::kernel_names.size());
  for (const Kernel kernel : all) {
    const auto before = support::far::counts();
    const auto found = trials(std::span(&kernel, 1));
    CAPTURE(cuda::kernel_names[static_cast<std::size_t>(kernel)], found.found);
    CHECK(found.agrees);
    if (kernel != Kernel::flash_attention) CHECK(support::far::counts().since(before).kernels > 0);
  }
  const auto found = trials(all);
  CAPTURE(found.found);
  CHECK(found.agrees);
}

TEST_CASE("a kernel that writes nothing, or something else, does not agree") {
  const rlalgo::support::ScratchDirectory dir;
  assembly::KernelTrials trials(support::far::device(), dir.path(), assembly::smallest_kernel_trial);
  const auto refused = [&](Kernel kernel, const auto& change) {
    CAPTURE(cuda::kernel_names[static_cast<std::size_t>(kernel)]);
    const WithChanged changed(change);
    CHECK_FALSE(agrees(trials, kernel));
  };
  refused(Kernel::rms_norm, [](cuda::Kernels& t) { t.rms_norm = nothing; });
  refused(Kernel::rms_norm, [](cuda::Kernels& t) { t.rms_norm_gradient = nothing; });
  refused(Kernel::rotate, [](cuda::Kernels& t) { t.rotate = nothing; });
  refused(Kernel::gated, [](cuda::Kernels& t) { t.gated = nothing; });
  refused(Kernel::segment_sum, [](cuda::Kernels& t) { t.segment_sum = nothing; });
  refused(Kernel::log_prob, [](cuda::Kernels& t) { t.log_prob_gradient = nothing; });
  refused(Kernel::unrolled_heads, [](cuda::Kernels& t) { t.unrolled_heads = nothing; });
  refused(Kernel::unrolled_heads, [](cuda::Kernels& t) { t.unrolled_heads_gradient = nothing; });
  refused(Kernel::decode_attention, [](cuda::Kernels& t) { t.decode_attention = nothing; });
  refused(Kernel::decode_attention, [](cuda::Kernels& t) { t.page_write = nothing; });
  refused(Kernel::dropout, [](cuda::Kernels& t) { t.dropout = nothing; });
  refused(Kernel::dequantise, [](cuda::Kernels& t) { t.dequantise = nothing; });
  refused(Kernel::product_8bit, [](cuda::Kernels& t) { t.product_8bit = nothing; });
  refused(Kernel::adamw_8bit, [](cuda::Kernels& t) { t.adamw_8bit = nothing; });
  refused(Kernel::draw, [](cuda::Kernels& t) { t.draw = nothing; });
  refused(Kernel::rms_norm, [](cuda::Kernels& t) {
    static int (*const right)(const cuda::RmsNorm&, cuda::Stream) = t.rms_norm;
    t.rms_norm = [](const cuda::RmsNorm& given, cuda::Stream stream) {
      cuda::RmsNorm other = given;
      other.epsilon += 1e-3F;
      return right(other, stream);
    };
  });
}
