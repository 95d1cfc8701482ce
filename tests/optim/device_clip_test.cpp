// An optimizer that applies it is tested in tests/far.
#include <rlalgo/optim/device_clip.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/clip.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("norm and divisor are those of clip_grad_norm, in every dtype") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    std::vector<at::Tensor> gradients;
    for (const std::int64_t size : {1, 7, 1000}) gradients.push_back(at::randn({size, 3}, type));
    gradients.push_back(at::randn({5}, at::kFloat));
    for (const double most : {0.0, 0.5, 1e6}) {
      const auto clip = optim::device_clip(gradients, most);
      auto copies = gradients;
      for (auto& g : copies) g = g.clone();
      const double norm = optim::clip_grad_norm(copies, most);
      CHECK(clip.norm.item<double>() == Approx(norm).epsilon(1e-6));
      CHECK(clip.skip.item<double>() == 0.0);
      CHECK(clip.divisor.defined() == (most > 0.0));
      if (most > 0.0) CHECK(clip.divisor.item<double>() == Approx(std::max(1.0, (norm + 1e-6) / most)).epsilon(1e-6));
      if (most == 1e6) CHECK(clip.divisor.item<double>() == 1.0);
    }
  }
}

TEST_CASE("an update is skipped where a gradient or a loss is not finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto skips = [](double gradient, std::vector<double> losses) {
    std::vector<at::Tensor> each;
    for (const double loss : losses) each.push_back(at::scalar_tensor(loss, at::kFloat));
    return optim::device_clip(std::vector<at::Tensor>{at::tensor({1.0, gradient}, at::kFloat)}, 1.0, each)
               .skip.item<double>() == 1.0;
  };
  CHECK_FALSE(skips(2.0, {}));
  CHECK_FALSE(skips(2.0, {-3.0, 1e30}));
  CHECK(skips(std::nan(""), {}));
  CHECK(skips(infinity, {1.0}));
  CHECK(skips(2.0, {1.0, std::nan("")}));
  CHECK(skips(2.0, {-infinity, 1.0}));
}
