#include <rlalgo/model/operations_for.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the CPU has its own operations, a GPU those with the project's kernels, every other device ATen's") {
  const auto* cpu = &model::operations_for(at::kCPU);
  const auto* meta = &model::operations_for(at::kMeta);
  CHECK(dynamic_cast<const model::CpuOperations*>(cpu) != nullptr);
  CHECK(dynamic_cast<const model::AtenOperations*>(meta) != nullptr);
  const auto* cuda = &model::operations_for(at::Device(at::kCUDA, 1));
  CHECK(dynamic_cast<const model::CudaOperations*>(cuda) != nullptr);
  CHECK(dynamic_cast<const model::CudaOperations*>(meta) == nullptr);
  CHECK(&model::operations_for(at::kCPU) == cpu);
}
