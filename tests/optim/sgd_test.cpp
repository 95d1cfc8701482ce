#include <rlalgo/optim/sgd.hpp>

#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/concept.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

static_assert(optim::Optimizer<optim::Sgd> && optim::HasMomentum<optim::Sgd>);

TEST_CASE("two steps of SGD by hand") {
  // g = 2 + 0.5·1; b = g of the first update, not dampened: p = 1 − 0.1·2.5. Then b = 0.9·2.5 + 0.75·(−1 + 0.5·0.75).
  std::vector<model::Parameter> p = {{"w", at::ones({1}, at::kDouble).requires_grad_(), true}};
  optim::Sgd sgd(p, {.momentum = 0.9, .dampening = 0.25, .weight_decay = 0.5});
  p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
  sgd.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.75).epsilon(1e-14));
  p[0].value.mutable_grad() = at::full({1}, -1.0, at::kDouble);
  sgd.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.75 - 0.1 * (0.9 * 2.5 + 0.75 * -0.625)).epsilon(1e-14));
  sgd.set_momentum(0.0);
  const double before = p[0].value.item<double>();
  sgd.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(before - 0.1 * 0.75 * (-1.0 + 0.5 * before)).epsilon(1e-14));
}

TEST_CASE("SGD without a momentum has no buffers, and none to move") {
  optim::Sgd sgd(rule_path::parameters());
  CHECK(sgd.state().empty());
  CHECK(lacks(raised_by([&] { sgd.set_momentum(0.9); }), {"optim.8", "SGD", "momentum"}) == "");
}

// Reference: torch 2.11 (scripts/fixtures/optim_rules.py).
TEST_CASE("SGD walks the path of torch.optim.SGD") {
  const auto worst = [](const optim::SgdConfig& config, const rule_path::Values& expected) {
    auto p = rule_path::parameters();
    optim::Sgd optimizer(p, config);
    rule_path::walk(optimizer, p, 0, 5);
    return rule_path::difference(p, expected);
  };
  CHECK(worst({.weight_decay = 0.1},
              {{"w",
                {0.993346095f, 0.758129001f, 0.165801674f, -0.499606311f, -0.939788461f, -0.930663764f, -0.492472768f,
                 0.185914487f, 0.7753914f, 0.998767793f, 0.750952423f, 0.148574919f, -0.514988959f, -0.945507944f,
                 -0.923293531f}},
               {"tall",
                {0.529785275f, -0.13577795f, -0.734255195f, -0.987112582f, -0.795962274f, -0.201555923f, 0.461203814f,
                 0.916857719f, 0.944504261f, 0.521987379f, -0.151932135f, -0.750876904f}},
               {"plain", {-0.421752632f, -0.905172348f, -0.95594281f, -0.571454465f}}}) < 1e-7);
  CHECK(worst({.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
              {{"w",
                {0.982801139f, 0.740583718f, 0.142222598f, -0.486249477f, -0.936858892f, -0.924317598f, -0.512456834f,
                 0.194264054f, 0.794827938f, 1.01755941f, 0.757398784f, 0.12658824f, -0.508588076f, -0.944029331f,
                 -0.907340705f}},
               {"tall",
                {0.481880099f, -0.18276f, -0.747422874f, -0.936823368f, -0.833572745f, -0.15709129f, 0.418639004f,
                 0.886666059f, 0.947399437f, 0.525640965f, -0.180174634f, -0.789497912f}},
               {"plain", {-0.473277897f, -0.935154676f, -0.910888851f, -0.530193031f}}}) < 1e-7);
  CHECK(worst({.momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
              {{"w",
                {0.965520442f, 0.727846444f, 0.14660579f, -0.473437488f, -0.943706393f, -0.906474292f, -0.513094187f,
                 0.180501714f, 0.782304347f, 1.0035795f, 0.740081489f, 0.122393526f, -0.493549138f, -0.950689971f,
                 -0.892556489f}},
               {"tall",
                {0.477430016f, -0.173716873f, -0.717404187f, -0.934363663f, -0.838838637f, -0.150232017f, 0.432496667f,
                 0.863182127f, 0.915906429f, 0.496783793f, -0.196642131f, -0.767462015f}},
               {"plain", {-0.442048997f, -0.897827089f, -0.885441244f, -0.565122724f}}}) < 1e-7);
}

TEST_CASE("SGD repeats itself, leaves idle parameters alone, has rates of parameters, and serves for shards") {
  for (const optim::SgdConfig& config : std::vector<optim::SgdConfig>{
           {.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1}, {.momentum = 0.9, .nesterov = true}}) {
    rule_path::expect_repeatable<optim::Sgd>(config);
    rule_path::expect_idle<optim::Sgd>(config);
    rule_path::expect_rates<optim::Sgd>(config);
    rule_path::expect_divisible<optim::Sgd>(config);
  }
}
