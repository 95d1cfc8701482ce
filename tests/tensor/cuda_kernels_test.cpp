// Kernels here run on the host (support/host_kernels.cpp).
#include <rlalgo/tensor/cuda_kernels.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

// Made when it is asked for: the table of kernels is there when main() begins.
tensor::OwnKernels on_host() { return {.table = cuda::compiled(), .device = at::kCPU}; }

}  // namespace

TEST_CASE("a kernel is taken for tensors that it can read, of the device that it is for") {
  REQUIRE(on_host().table != nullptr);
  const auto x = at::randn({3, 8}), half = x.to(at::kBFloat16);
  const auto takes = [&](const auto&... tensors) {
    return on_host().take(cuda::Kernel::rotate, tensors...) != nullptr;
  };
  CHECK(takes(x));
  CHECK(takes(x, x, at::Tensor()));
  CHECK(takes(half, half));
  CHECK_FALSE(takes(x, half));
  CHECK_FALSE(takes(x.to(at::kDouble)));
  CHECK_FALSE(takes(x.to(at::kHalf)));
  CHECK_FALSE(takes(x.t()));
  CHECK_FALSE(takes(x, x.t()));
  CHECK_FALSE(takes(at::empty({3, 8}, at::kMeta)));
  CHECK(tensor::OwnKernels{.table = cuda::compiled()}.take(cuda::Kernel::rotate, x) == nullptr);  // those are for a GPU
  CHECK(tensor::OwnKernels{.table = nullptr, .device = at::kCPU}.take(cuda::Kernel::rotate, x) == nullptr);
}

TEST_CASE("kernels are chosen by name, and a name that there is not is refused") {
  const auto x = at::randn({3, 8});
  const auto taken = [&](cuda::Kernel kernel) { return on_host().take(kernel, x) != nullptr; };
  CHECK(tensor::choose_kernels("gated,draw"));
  CHECK_FALSE(taken(cuda::Kernel::rotate));
  CHECK(taken(cuda::Kernel::gated));
  CHECK(cuda::in_use(cuda::Kernel::draw));
  CHECK_FALSE(tensor::choose_kernels("none"));
  CHECK_FALSE(taken(cuda::Kernel::gated));
  for (const char* list : {"swiglu", "rotate,,draw", "", "all,draw", "rotate,"})
    CHECK(support::number_raised_by([&] { tensor::choose_kernels(list); }) == "tensor.16");
  CHECK(tensor::choose_kernels("all"));
  CHECK(taken(cuda::Kernel::gated));
  CHECK(tensor::cuda_kernels() == nullptr);  // the variable is not set here
}

TEST_CASE("a launch that fails names the kernel, CUDA's words and the shape") {
  const auto x = at::randn({3, 8});
  const auto run = [&] {
    tensor::launch(*on_host().table, on_host().table->draw, cuda::Draw{.count = 1, .vocabulary = 0}, cuda::Kernel::draw,
                   x);
  };
  CHECK(support::number_raised_by(run) == "tensor.15");
  CHECK_THROWS_WITH(run(), Catch::Contains("CUDA kernel draw") && Catch::Contains("invalid argument") &&
                               Catch::Contains("[3, 8] on cpu") &&
                               Catch::Contains("without draw in RLALGO_CUDA_KERNELS"));
  // A GPU that they were not compiled for.
  const auto older = [&] {
    tensor::launch(
        *on_host().table, +[](const cuda::Draw&, cuda::Stream) { return 209; }, cuda::Draw{}, cuda::Kernel::draw, x);
  };
  CHECK_THROWS_WITH(older(), Catch::Contains("capability 8.0") && !Catch::Contains("an earlier kernel"));
}
