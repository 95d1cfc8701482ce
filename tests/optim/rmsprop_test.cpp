#include <rlalgo/optim/rmsprop.hpp>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/concept.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

static_assert(optim::Optimizer<optim::RmsProp> && optim::HasMomentum<optim::RmsProp>);

TEST_CASE("one step of RMSprop by hand, plain, centered and with a momentum") {
  // v = 0.5·4 = 2, a = 0.5·2 = 1: d = √2 or √(2 − 1).
  const auto moved = [](const optim::RmsPropConfig& config, int steps) {
    std::vector<model::Parameter> p = {{"w", at::zeros({1}, at::kDouble).requires_grad_(), true}};
    optim::RmsProp rmsprop(p, config);
    for (int t = 0; t < steps; ++t) {
      p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
      rmsprop.step(0.1);
    }
    return p[0].value.item<double>();
  };
  CHECK(moved({.alpha = 0.5}, 1) == Approx(-0.2 / std::sqrt(2.0)).epsilon(1e-7));
  CHECK(moved({.alpha = 0.5, .centered = true}, 1) == Approx(-0.2).epsilon(1e-7));
  // v = 3 in the second step: b = 0.5·2/√2 + 2/√3.
  CHECK(moved({.alpha = 0.5, .momentum = 0.5}, 2) ==
        Approx(-0.1 * (2 / std::sqrt(2.0) + (0.5 * 2 / std::sqrt(2.0) + 2 / std::sqrt(3.0)))).epsilon(1e-7));
  optim::RmsProp without(rule_path::parameters());
  CHECK(lacks(raised_by([&] { without.set_momentum(0.9); }), {"optim.8", "RMSprop"}) == "");
}

// Reference: torch 2.11 (scripts/fixtures/optim_rules.py).
TEST_CASE("RMSprop walks the path of torch.optim.RmsProp") {
  const auto worst = [](const optim::RmsPropConfig& config, const rule_path::Values& expected) {
    auto p = rule_path::parameters();
    optim::RmsProp optimizer(p, config);
    rule_path::walk(optimizer, p, 0, 5);
    return rule_path::difference(p, expected);
  };
  CHECK(worst({.weight_decay = 0.1},
              {{"w",
                {0.833415926f, 0.630202234f, 0.10800191f, -0.35927707f, -0.900605798f, -0.955744803f, -0.576843739f,
                 0.203004867f, 0.808039188f, 1.02697015f, 0.757803798f, 0.0580252185f, -0.547261357f, -0.904689908f,
                 -0.785221159f}},
               {"tall",
                {0.453873456f, -0.191748098f, -0.749462187f, -0.917534947f, -0.888725817f, -0.11741221f, 0.415977359f,
                 0.788559139f, 0.962732017f, 0.542595148f, -0.275371403f, -0.785966814f}},
               {"plain", {-0.452825695f, -0.92651695f, -0.837715924f, -0.546383858f}}}) < 1e-7);
  CHECK(worst({.alpha = 0.9, .epsilon = 1e-3, .centered = true, .momentum = 0.5, .weight_decay = 0.1},
              {{"w",
                {0.893110871f, 0.67419976f, 0.129902616f, -0.407624513f, -0.92650789f, -0.937611282f, -0.553116024f,
                 0.191888586f, 0.797326922f, 1.01872373f, 0.752677023f, 0.0869040117f, -0.524416327f, -0.931770384f,
                 -0.833802462f}},
               {"tall",
                {0.481324732f, -0.170944989f, -0.740135074f, -0.945251524f, -0.860647798f, -0.145936698f, 0.437497586f,
                 0.833928466f, 0.951684952f, 0.529545844f, -0.234547645f, -0.771304786f}},
               {"plain", {-0.435531229f, -0.912814319f, -0.878684223f, -0.561611176f}}}) < 1e-7);
}

TEST_CASE("RMSprop repeats itself, leaves idle parameters alone, has rates of parameters, and serves for shards") {
  for (const optim::RmsPropConfig& config :
       std::vector<optim::RmsPropConfig>{{.weight_decay = 0.1}, {.centered = true, .momentum = 0.5}}) {
    rule_path::expect_repeatable<optim::RmsProp>(config);
    rule_path::expect_idle<optim::RmsProp>(config);
    rule_path::expect_rates<optim::RmsProp>(config);
    rule_path::expect_divisible<optim::RmsProp>(config);
  }
}
