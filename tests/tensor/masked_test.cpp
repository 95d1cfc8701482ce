#include <support/catch.hpp>

#include <limits>

#include <ATen/ATen.h>

#include <rlalgo/tensor/masked.hpp>

namespace {
using at::Tensor;
using namespace rlalgo::tensor;
}  // namespace

TEST_CASE("masked positions are exactly 0 in value and gradient, whatever they hold") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = at::tensor({1.0, nan, 3.0}, at::kDouble).requires_grad_();
  const Tensor mask = at::tensor({1.0, 0.0, 1.0}, at::kDouble);
  const Tensor out = masked(x.exp(), mask);
  CHECK(out[1].item<double>() == 0.0);
  CHECK(out[2].item<double>() == std::exp(3.0));
  (masked(x, mask) * 2).sum().backward();
  CHECK(x.grad().equal(at::tensor({2.0, 0.0, 2.0}, at::kDouble)));
}

TEST_CASE("row sums and spreading are each other's gradients; empty rows are 0") {
  const Tensor values = at::tensor({1.0, 2.0, 4.0, 8.0}, at::kDouble).requires_grad_();
  const Tensor row = at::tensor({0, 2, 2, 3}, at::kLong);
  const Tensor sums = row_sum(values, row, 5);
  CHECK(sums.equal(at::tensor({1.0, 0.0, 6.0, 8.0, 0.0}, at::kDouble)));
  const Tensor weights = at::tensor({5.0, 6.0, 7.0, 8.0, 9.0}, at::kDouble);
  (sums * weights).sum().backward();
  CHECK(values.grad().equal(spread(weights, row)));
  CHECK(spread(weights, row).equal(at::tensor({5.0, 7.0, 7.0, 8.0}, at::kDouble)));
}
