#include <rlalgo/tensor/host_copies.hpp>

#include <cstdint>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("host values become those of a tensor") {
  const std::vector<std::int64_t> values{3, -1, 7};
  const auto x = tensor::on_device(std::span<const std::int64_t>(values), at::Device(at::kCPU));
  CHECK(x.scalar_type() == at::kLong);
  CHECK(std::vector<std::int64_t>(x.const_data_ptr<std::int64_t>(), x.const_data_ptr<std::int64_t>() + 3) == values);
  const auto all = tensor::zeros({5}, at::TensorOptions().dtype(at::kLong));
  tensor::copy_from_host(all.narrow(0, 1, 3), std::span<const std::int64_t>(values));
  CHECK(all.const_data_ptr<std::int64_t>()[1] == 3);
  CHECK(all.const_data_ptr<std::int64_t>()[4] == 0);
  CHECK(tensor::on_device(std::span<const float>(), at::Device(at::kCPU)).size(0) == 0);
}
