#include <rlalgo/optim/adagrad.hpp>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/concept.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

static_assert(optim::Optimizer<optim::Adagrad> && optim::HasMomentum<optim::Adagrad>);

TEST_CASE("two steps of Adagrad by hand") {
  // s = 4: 1 − 0.1·2/2; then s = 4 + 1, at the rate 0.1/(1 + 1·1).
  std::vector<model::Parameter> p = {{"w", at::ones({1}, at::kDouble).requires_grad_(), true}};
  optim::Adagrad adagrad(p, {.lr_decay = 1.0});
  p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
  adagrad.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.9).epsilon(1e-9));
  p[0].value.mutable_grad() = at::full({1}, -1.0, at::kDouble);
  adagrad.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.9 + 0.05 / std::sqrt(5.0)).epsilon(1e-9));
  CHECK(lacks(raised_by([&] { adagrad.set_momentum(0.9); }), {"optim.8", "Adagrad"}) == "");
}

// Reference: torch 2.11 (scripts/fixtures/optim_rules.py).
TEST_CASE("Adagrad walks the path of torch.optim.Adagrad") {
  const auto worst = [](const optim::AdagradConfig& config, const rule_path::Values& expected) {
    auto p = rule_path::parameters();
    optim::Adagrad optimizer(p, config);
    rule_path::walk(optimizer, p, 0, 5);
    return rule_path::difference(p, expected);
  };
  CHECK(worst({.lr_decay = 0.5, .weight_decay = 0.1},
              {{"w",
                {0.984238386f, 0.750809848f, 0.161166415f, -0.490107477f, -0.937363565f, -0.940119326f, -0.501641691f,
                 0.190758839f, 0.782410681f, 1.00640523f, 0.75743103f, 0.141687021f, -0.523318827f, -0.942885339f,
                 -0.915817201f}},
               {"tall",
                {0.529451132f, -0.137881339f, -0.741271973f, -0.988862216f, -0.802999079f, -0.199309111f, 0.460812241f,
                 0.913177907f, 0.953764379f, 0.52979672f, -0.159420729f, -0.755484343f}},
               {"plain", {-0.422428936f, -0.908731163f, -0.953016341f, -0.569423556f}}}) < 1e-7);
}

TEST_CASE("Adagrad repeats itself, leaves idle parameters alone, has rates of parameters, and serves for shards") {
  for (const optim::AdagradConfig& config :
       std::vector<optim::AdagradConfig>{{.weight_decay = 0.1}, {.lr_decay = 0.5}}) {
    rule_path::expect_repeatable<optim::Adagrad>(config);
    rule_path::expect_idle<optim::Adagrad>(config);
    rule_path::expect_rates<optim::Adagrad>(config);
    rule_path::expect_divisible<optim::Adagrad>(config);
  }
}
