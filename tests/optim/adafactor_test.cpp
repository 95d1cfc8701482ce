#include <rlalgo/optim/adafactor.hpp>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/concept.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

static_assert(optim::Optimizer<optim::Adafactor> && optim::HasMomentum<optim::Adafactor>);

TEST_CASE("one step of Adafactor by hand") {
  // t = 1: β = 0. g = [[3, 4], [0, 5]] (ε₁ aside): r = {12.5, 12.5}, c = {4.5, 20.5}, mean r = 12.5: u = g/√c, whose first row
  // is {3/√4.5, 4/√20.5}. Its size: rms = √(9/4.5 + 16/20.5 + 25/20.5)/2 = 1, so nothing is clipped at 1, and halved at 0.5.
  for (const double limit : {1.0, 0.5}) {
    std::vector<model::Parameter> p = {{"w", at::ones({2, 2}, at::kDouble).requires_grad_(), true}};
    optim::Adafactor optimizer(p, {.clip_threshold = limit, .weight_decay = 0.5});
    p[0].value.mutable_grad() = at::tensor({3.0, 4.0, 0.0, 5.0}, at::kDouble).view({2, 2});
    optimizer.step(0.1);
    const at::Tensor value = p[0].value.detach();
    CHECK(value[0][0].item<double>() == Approx(0.95 - 0.1 * limit * 3 / std::sqrt(4.5)).epsilon(1e-12));
    CHECK(value[1][0].item<double>() == Approx(0.95).epsilon(1e-12));
    CHECK(value[1][1].item<double>() == Approx(0.95 - 0.1 * limit * 5 / std::sqrt(20.5)).epsilon(1e-12));
    CHECK(optimizer.state()[0].second.equal(at::full({2}, 12.5, at::kDouble)));
  }
}

// Reference: transformers 5.23, transformers.optimization.Adafactor on torch 2.11 (scripts/fixtures/optim_rules.py).
TEST_CASE("Adafactor walks the path of transformers'") {
  const rule_path::Values plain = {
      {"w",
       {0.992757559f, 0.756534338f, 0.162975967f, -0.498249263f, -0.938780069f, -0.930864215f, -0.491885364f,
        0.184080675f, 0.774785042f, 0.997852981f, 0.761646032f, 0.144470796f, -0.514741898f, -0.944206238f,
        -0.921261907f}},
      {"tall",
       {0.533951283f, -0.130473793f, -0.734006405f, -0.990823328f, -0.793941796f, -0.204890728f, 0.462049216f,
        0.919155121f, 0.948746264f, 0.525006175f, -0.150230467f, -0.748497605f}},
      {"plain", {-0.416602969f, -0.903951108f, -0.956654131f, -0.574907959f}}};
  auto p = rule_path::parameters();
  optim::Adafactor first(p, {.weight_decay = 0.1});
  rule_path::walk(first, p, 0, 5);
  CHECK(rule_path::difference(p, plain) < 1e-6);
  const rule_path::Values scaled = {
      {"w",
       {0.994915485f, 0.759969294f, 0.16745995f, -0.501103342f, -0.939595342f, -0.931873441f, -0.49032554f,
        0.185073942f, 0.773697495f, 0.997110903f, 0.75297308f, 0.150207266f, -0.516054511f, -0.945085108f,
        -0.924970508f}},
      {"tall",
       {0.536572158f, -0.129464269f, -0.734223604f, -0.993809938f, -0.790335298f, -0.208075285f, 0.465585053f,
        0.922141314f, 0.94682461f, 0.523877084f, -0.147061303f, -0.746798575f}},
      {"plain", {-0.416091412f, -0.903578699f, -0.963911712f, -0.575199127f}}};
  p = rule_path::parameters();
  optim::Adafactor second(p, {.epsilon_square = 1e-20,
                              .epsilon_scale = 0.9,
                              .clip_threshold = 0.5,
                              .decay_rate = -0.5,
                              .beta1 = 0.9,
                              .weight_decay = 0.1,
                              .scale_parameter = true});
  rule_path::walk(second, p, 0, 5);
  CHECK(rule_path::difference(p, scaled) < 1e-6);
}

TEST_CASE("Adafactor's state of a matrix is a row and a column; it repeats itself") {
  rule_path::expect_repeatable<optim::Adafactor>({.weight_decay = 0.1});
  rule_path::expect_repeatable<optim::Adafactor>({.beta1 = 0.9, .scale_parameter = true});
  rule_path::expect_idle<optim::Adafactor>({});
  rule_path::expect_rates<optim::Adafactor>({.weight_decay = 0.1});
  auto p = rule_path::parameters();
  std::int64_t elements = 0;
  for (const auto& [name, value] : optim::Adafactor(p).state()) elements += value.numel();
  CHECK(elements == (3 + 5) + (6 + 2) + 4 + 3);  // and the number of updates of each
}

TEST_CASE("a momentum is moved where there is one") {
  auto p = rule_path::parameters();
  optim::Adafactor none(p), one(p, {.beta1 = 0.9});
  CHECK(lacks(raised_by([&] { none.set_momentum(0.5); }), {"optim.8", "beta1"}) == "");
  CHECK(raised_by([&] { one.set_momentum(0.5); }) == "nothing");
}
