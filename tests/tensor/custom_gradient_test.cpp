#include <support/catch.hpp>

#include <ATen/ATen.h>

#include <rlalgo/tensor/custom_gradient.hpp>

namespace {
using at::Tensor;
using rlalgo::tensor::attach_gradient;

// x·y with a hand-written backward.
Tensor product(const Tensor& x, const Tensor& y) {
  const Tensor a = x.detach(), b = y.detach();
  return attach_gradient(a.mul(b), {x, y}, [a, b](const Tensor& grad) {
    return std::vector<Tensor>{grad.mul(b), grad.mul(a)};
  });
}
}  // namespace

TEST_CASE("a hand-written backward is used inside a larger graph") {
  const Tensor x = at::arange(6, at::kDouble).view({2, 3}).requires_grad_();
  const Tensor y = at::full({2, 3}, 2.0, at::kDouble).requires_grad_();
  const Tensor out = product(x * 3, y.exp());
  CHECK(out.equal(x.detach() * 3 * y.detach().exp()));
  (out * x).sum().backward();
  CHECK(x.grad().allclose(x.detach() * 6 * y.detach().exp(), 1e-14));
  CHECK(y.grad().allclose(x.detach().square() * 3 * y.detach().exp(), 1e-14));
}

TEST_CASE("scalars and inputs without gradient are accepted") {
  const Tensor x = at::full({}, 3.0, at::kDouble).requires_grad_();
  const Tensor y = at::full({}, 2.0, at::kDouble);
  product(x, y).backward();
  CHECK(x.grad().item<double>() == 2.0);
  CHECK_FALSE(product(y, y).requires_grad());
}

TEST_CASE("a second derivative is refused by number") {
  const Tensor x = at::ones({2}, at::kDouble).requires_grad_();
  const Tensor loss = product(x, x).sum();
  CHECK_THROWS_WITH(loss.backward({}, true, /*create_graph=*/true), Catch::Matchers::Contains("[rlalgo.tensor.4]"));
}
