#include <rlalgo/model/operations_for.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the CPU has its own operations, every other device those of ATen") {
  const auto* cpu = &model::operations_for(at::kCPU);
  const auto* meta = &model::operations_for(at::kMeta);
  CHECK(dynamic_cast<const model::CpuOperations*>(cpu) != nullptr);
  CHECK(dynamic_cast<const model::AtenOperations*>(meta) != nullptr);
  CHECK(&model::operations_for(at::Device(at::kCUDA, 1)) == meta);
  CHECK(&model::operations_for(at::kCPU) == cpu);
}
