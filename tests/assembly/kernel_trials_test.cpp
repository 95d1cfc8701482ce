#include <span>

#include <rlalgo/assembly/kernel_trials.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

// What it finds of kernels is tests/far/kernel_trials_test.cpp's.
TEST_CASE("where no kernel is used, operators agree with themselves") {
  const rlalgo::support::ScratchDirectory dir;
  assembly::KernelTrials trials(at::kCPU, dir.path(), assembly::smallest_kernel_trial);
  for (const cuda::Kernel kernel : {cuda::Kernel::segment_sum, cuda::Kernel::dequantise, cuda::Kernel::dropout}) {
    const bool before = cuda::in_use(kernel);
    const auto found = trials(std::span(&kernel, 1));
    CHECK(found.agrees);
    CHECK(found.found.find(kernel == cuda::Kernel::dequantise ? "the same bits" : "distance") == 0);
    CHECK(cuda::in_use(kernel) == before);
  }
}
