#include <support/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/clip.hpp>

namespace {
using at::Tensor;
using rlalgo::optim::clip_grad_norm;

std::vector<Tensor> three_four() {
  return {at::tensor({3.0, 0.0}, at::kDouble), at::tensor({4.0}, at::kDouble).view({1, 1})};  // norm 5
}
}  // namespace

TEST_CASE("gradients above the norm are scaled to it, others are untouched") {
  auto gradients = three_four();
  CHECK(clip_grad_norm(gradients, 1.0) == 5.0);
  const double scale = 1.0 / (5.0 + 1e-6);
  CHECK(gradients[0][0].item<double>() == Approx(3.0 * scale).epsilon(1e-15));
  CHECK(gradients[1].item<double>() == Approx(4.0 * scale).epsilon(1e-15));

  gradients = three_four();
  CHECK(clip_grad_norm(gradients, 5.1) == 5.0);
  CHECK(gradients[0][0].item<double>() == 3.0);
}

TEST_CASE("a maximum of 0 only measures; no gradients have norm 0; a norm that is not finite scales nothing") {
  auto gradients = three_four();
  CHECK(clip_grad_norm(gradients, 0.0) == 5.0);
  CHECK(gradients[1].item<double>() == 4.0);
  CHECK(clip_grad_norm({}, 1.0) == 0.0);
  gradients[0][1] = std::numeric_limits<double>::infinity();
  CHECK(std::isinf(clip_grad_norm(gradients, 1.0)));
  CHECK(gradients[1].item<double>() == 4.0);
}

TEST_CASE("gradients of several dtypes share one norm") {
  std::vector<Tensor> gradients = {at::tensor({3.0f}), at::tensor({4.0}, at::kDouble)};
  CHECK(clip_grad_norm(gradients, 1.0) == Approx(5.0));
  CHECK(gradients[0].item<float>() == Approx(0.6).epsilon(1e-6));
  CHECK(gradients[0].scalar_type() == at::kFloat);
}

TEST_CASE("the norm of bfloat16 gradients is not rounded to bfloat16") {
  // 300 ones: √300 = 17.32; the bfloat16 nearest to it is 17.375
  std::vector<Tensor> gradients = {at::ones({300}, at::kBFloat16), at::zeros({2}, at::kBFloat16)};
  CHECK(clip_grad_norm(gradients, 1.0) == Approx(std::sqrt(300.0)).epsilon(1e-6));
  CHECK(gradients[0].scalar_type() == at::kBFloat16);
  CHECK(gradients[0][7].item<double>() == Approx(1.0 / std::sqrt(300.0)).epsilon(4e-3));
}
