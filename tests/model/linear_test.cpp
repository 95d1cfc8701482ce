#include <rlalgo/model/linear.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("linear maps equal their formula, with and without bias and residual") {
  const auto x = at::randn({3, 4}, at::kDouble), w = at::randn({5, 4}, at::kDouble), b = at::randn({5}, at::kDouble);
  const auto r = at::randn({3, 5}, at::kDouble);
  const auto product = at::mm(x, w.t());
  CHECK(model::linear(x, {w, {}}).allclose(product));
  CHECK(model::linear(x, {w, b}).allclose(product + b));
  CHECK(model::linear_residual(r, x, {w, {}}).allclose(product + r));
  CHECK(model::linear_residual(r, x, {w, b}).allclose(product + b + r));
}

TEST_CASE("weight gradients are added in place, and only where they are wanted") {
  const auto x = at::randn({3, 4}, at::kDouble), grad = at::randn({3, 5}, at::kDouble);
  const auto w = at::randn({5, 4}, at::kDouble).requires_grad_(), b = at::randn({5}, at::kDouble).requires_grad_();
  (void)model::linear_backward({w, b}, grad, x);
  const auto* memory = w.grad().const_data_ptr();
  (void)model::linear_backward({w, b}, grad, x);
  CHECK(w.grad().const_data_ptr() == memory);
  CHECK(w.grad().allclose(2 * at::mm(grad.t(), x)));
  CHECK(b.grad().allclose(2 * grad.sum(0)));
  const auto frozen = at::randn({5, 4}, at::kDouble);
  (void)model::linear_backward({frozen, {}}, grad, x);
  CHECK_FALSE(frozen.grad().defined());
  CHECK_FALSE(model::gradient_buffer({}).defined());
}
