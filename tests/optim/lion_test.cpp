#include <rlalgo/optim/lion.hpp>

#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/concept.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

static_assert(optim::Optimizer<optim::Lion> && optim::HasMomentum<optim::Lion>);

TEST_CASE("one step of Lion by hand, and one that its momentum turns round") {
  // u = 0.1·g, sign 1: p = 1·(1 − 0.1·0.5) − 0.1; m = 0.01·2. Then g = −1: u = 0.9·0.02 − 0.1 < 0: up.
  std::vector<model::Parameter> p = {{"w", at::ones({1}, at::kDouble).requires_grad_(), true}};
  optim::Lion lion(p, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.5});
  p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
  lion.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.85).epsilon(1e-14));
  CHECK(lion.state()[0].second.item<double>() == Approx(0.02).epsilon(1e-14));
  p[0].value.mutable_grad() = at::full({1}, -1.0, at::kDouble);
  lion.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.85 * 0.95 + 0.1).epsilon(1e-14));
  lion.set_momentum(0.0);  // the sign of the gradient alone
  p[0].value.mutable_grad() = at::full({1}, 1e-9, at::kDouble);
  const double before = p[0].value.item<double>();
  lion.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(before * 0.95 - 0.1).epsilon(1e-14));
}

// Reference: lion-pytorch 0.2.5 on torch 2.11 (scripts/fixtures/optim_rules.py).
TEST_CASE("Lion walks the path of lion-pytorch") {
  const rule_path::Values expected = {
      {"w",
       {0.992031455f, 0.747842789f, 0.159322619f, -0.488885015f, -0.932464421f, -0.938711941f, -0.48626861f,
        0.177771032f, 0.782434165f, 1.00583136f, 0.742894888f, 0.154795587f, -0.523209929f, -0.93794173f,
        -0.912765563f}},
      {"tall",
       {0.540178835f, -0.138295695f, -0.740444005f, -0.985179365f, -0.801753819f, -0.211988211f, 0.456679851f,
        0.909829557f, 0.952432811f, 0.529971719f, -0.158863932f, -0.755622506f}},
      {"plain", {-0.408146858f, -0.89607209f, -0.952798188f, -0.582824051f}}};
  auto p = rule_path::parameters();
  optim::Lion lion(p, {.beta2 = 0.99, .weight_decay = 0.1});
  rule_path::walk(lion, p, 0, 5);
  CHECK(rule_path::difference(p, expected) < 1e-6);
}

TEST_CASE("Lion repeats itself, leaves idle parameters alone, and serves for shards") {
  rule_path::expect_repeatable<optim::Lion>({.weight_decay = 0.1});
  rule_path::expect_idle<optim::Lion>({});
  rule_path::expect_rates<optim::Lion>({.weight_decay = 0.1});
  // Element by element: parts of a parameter move as the whole does.
  auto whole = rule_path::parameters();
  rule_path::set_gradients(whole, 0);
  std::vector<model::Parameter> parts;
  for (const int half : {0, 1}) {
    const auto part = [&](const at::Tensor& x) { return x.flatten().narrow(0, half * 7, half == 0 ? 7 : 8).clone(); };
    parts.push_back({"part", part(whole[0].value.detach()).requires_grad_(), true});
    parts.back().value.mutable_grad() = part(whole[0].value.grad());
  }
  optim::Lion one(whole), other(parts);
  one.step(1e-2);
  other.step(1e-2);
  CHECK(at::cat({parts[0].value.detach(), parts[1].value.detach()}).equal(whole[0].value.detach().flatten()));
}
