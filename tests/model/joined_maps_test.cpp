#include <rlalgo/model/joined_maps.hpp>

#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;
using model::JoinedMaps;
using model::Linear;

namespace {

// Maps of 3, 2 and 2 outputs over 5 inputs, in memory of one tensor or of their own.
std::vector<Linear> maps(bool together, bool biased, bool trained = true) {
  at::manual_seed(3);
  const auto weight = at::randn({7, 5}), bias = at::randn({7});
  std::vector<Linear> out(3);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t rows = i == 0 ? 3 : 2;
    const auto part = [&](const at::Tensor& x) {
      const auto view = x.narrow(0, first, rows);
      const auto own = together ? at::empty({0}).set_(x.storage(), view.storage_offset(), view.sizes(), view.strides())
                                : view.clone();
      return own.requires_grad_(trained);
    };
    out[i].weight = part(weight);
    if (biased) out[i].bias = part(bias);
    first += rows;
  }
  return out;
}

std::optional<JoinedMaps> joined(const std::vector<Linear>& of) { return JoinedMaps::of({&of[0], &of[1], &of[2]}); }

}  // namespace

TEST_CASE("joined maps give the products, and add the gradients, of the maps one by one") {
  const c10::NoGradGuard no_grad;
  for (const bool biased : {true, false}) {
    const auto together = maps(true, biased), apart = maps(false, biased);
    const auto all = joined(together);
    REQUIRE(all);
    CHECK_FALSE(joined(apart));
    for (int pass = 0; pass < 3;
         ++pass) {  // the second adds to gradients that lie together, the third to one that does not
      if (pass == 2) together[1].weight.mutable_grad() = together[1].weight.grad().clone();
      const auto x = at::randn({4, 5}), grad = at::randn({4, 7});
      std::vector<at::Tensor> outs;
      at::Tensor grad_x;
      std::int64_t first = 0;
      for (const Linear& map : apart) {
        outs.push_back(model::linear(x, map));
        grad_x = model::linear_backward(map, grad.narrow(1, first, map.weight.size(0)).contiguous(), x, grad_x);
        first += map.weight.size(0);
      }
      CHECK(all->forward(x).allclose(at::cat(outs, 1), 1e-5, 1e-6));
      CHECK(all->backward(grad, x).allclose(grad_x, 1e-5, 1e-6));
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(together[i].weight.grad().allclose(apart[i].weight.grad(), 1e-5, 1e-6));
        if (biased) CHECK(together[i].bias.grad().allclose(apart[i].bias.grad(), 1e-5, 1e-6));
      }
    }
  }
}

TEST_CASE("maps that are frozen, adapted, quantised, apart or trained in part") {
  const c10::NoGradGuard no_grad;
  const auto frozen = maps(true, true, false);
  REQUIRE(joined(frozen));
  CHECK(joined(frozen)->backward(at::randn({4, 7}), {}).sizes() == at::IntArrayRef{4, 5});
  CHECK_FALSE(frozen[0].weight.grad().defined());
  auto part = maps(true, false);
  part[1].weight.requires_grad_(false);
  CHECK_FALSE(joined(part));
  auto adapted = maps(true, false);
  adapted[2].lora.a = at::randn({1, 5});
  CHECK_FALSE(joined(adapted));
  auto one_bias = maps(true, true);
  one_bias[0].bias = at::Tensor();
  CHECK_FALSE(joined(one_bias));
  auto swapped = maps(true, false);
  std::swap(swapped[1], swapped[2]);
  CHECK_FALSE(joined(swapped));
  auto none = maps(true, false);
  none[0].weight = at::Tensor();
  CHECK_FALSE(joined(none));
}

TEST_CASE("halves of one product are seen as it") {
  const auto y = at::randn({3, 8});
  const auto both = model::detail::side_by_side({y.narrow(1, 0, 4), y.narrow(1, 4, 4)});
  REQUIRE(both.defined());
  CHECK(both.equal(y));
  CHECK(both.const_data_ptr() == y.const_data_ptr());
  CHECK_FALSE(model::detail::side_by_side({y.narrow(1, 4, 4), y.narrow(1, 0, 4)}).defined());
  CHECK_FALSE(model::detail::side_by_side({at::randn({3, 4}), at::randn({3, 4})}).defined());
  CHECK_FALSE(model::detail::side_by_side({y.narrow(1, 0, 3), y.narrow(1, 3, 3)}).defined());
}
