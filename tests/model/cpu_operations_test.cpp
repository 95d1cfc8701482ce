#include <rlalgo/model/cpu_operations.hpp>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

at::Tensor reference(const at::Tensor& x, const at::Tensor& w, double epsilon) {
  return x * (x.square().mean(-1, true) + epsilon).rsqrt() * w;
}

const model::CpuOperations operations;

}  // namespace

TEST_CASE("rms_norm of (3, 4) is (3, 4)/√12.5 times the weight") {
  const auto x = at::tensor({3.0F, 4.0F}).view({1, 2}), w = at::tensor({1.0F, 2.0F});
  const auto out = operations.rms_norm(x, w, {0.0});
  CHECK(out.value[0][0].item<float>() == Approx(3 / std::sqrt(12.5)));
  CHECK(out.value[0][1].item<float>() == Approx(8 / std::sqrt(12.5)));
}

TEST_CASE("rms_norm and its gradient equal autograd of the formula") {
  for (const std::int64_t width : {1, 7, 16, 37}) {
    const auto x = at::randn({5, width}, at::kDouble).requires_grad_(),
               w = at::randn({width}, at::kDouble).requires_grad_();
    const auto grad = at::randn({5, width}, at::kDouble);
    const model::NormSpec norm{1e-5, width == 16 || width == 37};
    const auto expected = reference(x, norm.unit_offset ? w + 1.0 : w, 1e-5);
    expected.backward(grad);
    const auto out = operations.rms_norm(x.detach(), w.detach(), norm);
    CHECK(out.value.allclose(expected.detach(), 1e-12, 1e-12));
    auto grad_w = at::ones({width}, at::kDouble);
    const auto grad_x = operations.rms_norm_backward(grad, x.detach(), w.detach(), norm, out.scale, {}, grad_w);
    CHECK(grad_x.allclose(x.grad(), 1e-10, 1e-10));
    CHECK(grad_w.allclose(w.grad() + 1, 1e-10, 1e-10));
    // Into a residual gradient, in place; the weight's gradient is optional.
    auto residual = at::full({5, width}, 2.0, at::kDouble);
    const auto sum = operations.rms_norm_backward(grad, x.detach(), w.detach(), norm, out.scale, residual, {});
    CHECK(sum.is_same(residual));
    CHECK(sum.allclose(x.grad() + 2, 1e-10, 1e-10));
  }
}

TEST_CASE("a bfloat16 norm sums in float") {
  const auto x = at::randn({3, 64}).to(at::kBFloat16), w = at::randn({64}).to(at::kBFloat16);
  const auto out = operations.rms_norm(x, w, {1e-6});
  CHECK(out.scale.scalar_type() == at::kFloat);
  CHECK(out.value.to(at::kFloat).allclose(reference(x.to(at::kFloat), w.to(at::kFloat), 1e-6), 2e-2, 2e-2));
  CHECK(out.value.sizes() == x.sizes());
}

TEST_CASE("rotation turns the halves against each other, and back") {
  const auto inv = model::rope_frequencies({.theta = 100.0}, 4);
  const std::vector<std::int64_t> positions = {0, 3, 7};
  // float32: wrong by 1e-7 of each of the two terms, whose sum may be near 0.
  const auto table = model::rope_table(inv, positions);
  const auto x = at::randn({3, 2, 4}, at::kDouble);
  auto y = x.clone();
  operations.rotate(y, table, model::Rotation::forward);
  CHECK(y[0].equal(x[0]));
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 2; ++i) {
      const double angle = 3 * std::pow(100.0, -i / 2.0), a = x[1][h][i].item<double>(),
                   b = x[1][h][i + 2].item<double>();
      CHECK(y[1][h][i].item<double>() == Approx(a * std::cos(angle) - b * std::sin(angle)).epsilon(1e-5).margin(1e-6));
      CHECK(y[1][h][i + 2].item<double>() ==
            Approx(b * std::cos(angle) + a * std::sin(angle)).epsilon(1e-5).margin(1e-6));
    }
  }
  // The backward rotation is the transpose: ⟨R x, z⟩ = ⟨x, Rᵀ z⟩.
  const auto z = at::randn({3, 2, 4}, at::kDouble);
  auto back = z.clone();
  operations.rotate(back, table, model::Rotation::backward);
  CHECK((y * z).sum().item<double>() == Approx((x * back).sum().item<double>()).epsilon(1e-12).margin(1e-12));
}

TEST_CASE("rows of the same index add up in order, in the dtype of the gradient") {
  const auto index = at::tensor({std::int64_t{2}, std::int64_t{0}, std::int64_t{2}});
  auto gradient = at::ones({3, 2}, at::kBFloat16);
  operations.add_rows(gradient, index, at::tensor({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}).view({3, 2}).to(at::kBFloat16));
  CHECK(gradient.to(at::kDouble).equal(at::tensor({4.0, 5.0, 1.0, 1.0, 7.0, 9.0}, at::kDouble).view({3, 2})));
}

TEST_CASE("another dtype is refused by number") {
  const auto x = at::ones({1, 2}, at::kHalf);
  CHECK(rlalgo::support::lacks(rlalgo::support::raised_by([&] { (void)operations.rms_norm(x, x[0], {0.0}); }),
                               {"model.15", "Half"}) == "");
}
