#include <rlalgo/model/rms_norm.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

at::Tensor reference(const at::Tensor& x, const at::Tensor& w, double epsilon) {
  return x * (x.square().mean(-1, true) + epsilon).rsqrt() * w;
}

}  // namespace

TEST_CASE("rms_norm of (3, 4) is (3, 4)/√12.5 times the weight") {
  const auto x = at::tensor({3.0F, 4.0F}).view({1, 2}), w = at::tensor({1.0F, 2.0F});
  const auto out = model::rms_norm(x, w, 0.0);
  CHECK(out.value[0][0].item<float>() == Approx(3 / std::sqrt(12.5)));
  CHECK(out.value[0][1].item<float>() == Approx(8 / std::sqrt(12.5)));
}

TEST_CASE("rms_norm and its gradient equal autograd of the formula") {
  for (const std::int64_t width : {1, 7, 16, 37}) {
    const auto x = at::randn({5, width}, at::kDouble).requires_grad_(),
               w = at::randn({width}, at::kDouble).requires_grad_();
    const auto grad = at::randn({5, width}, at::kDouble);
    const auto expected = reference(x, w, 1e-5);
    expected.backward(grad);
    const auto out = model::rms_norm(x.detach(), w.detach(), 1e-5);
    CHECK(out.value.allclose(expected.detach(), 1e-12, 1e-12));
    auto grad_w = at::ones({width}, at::kDouble);
    const auto grad_x = model::rms_norm_backward(grad, x.detach(), w.detach(), out.scale, {}, grad_w);
    CHECK(grad_x.allclose(x.grad(), 1e-10, 1e-10));
    CHECK(grad_w.allclose(w.grad() + 1, 1e-10, 1e-10));
    // Into a residual gradient, in place; the weight's gradient is optional.
    auto residual = at::full({5, width}, 2.0, at::kDouble);
    const auto sum = model::rms_norm_backward(grad, x.detach(), w.detach(), out.scale, residual, {});
    CHECK(sum.is_same(residual));
    CHECK(sum.allclose(x.grad() + 2, 1e-10, 1e-10));
  }
}

TEST_CASE("a bfloat16 norm sums in float") {
  const auto x = at::randn({3, 64}).to(at::kBFloat16), w = at::randn({64}).to(at::kBFloat16);
  const auto out = model::rms_norm(x, w, 1e-6);
  CHECK(out.scale.scalar_type() == at::kFloat);
  CHECK(out.value.to(at::kFloat).allclose(reference(x.to(at::kFloat), w.to(at::kFloat), 1e-6), 2e-2, 2e-2));
  CHECK(out.value.sizes() == x.sizes());
}
