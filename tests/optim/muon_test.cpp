#include <rlalgo/optim/muon.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/concept.hpp>

#include "optim/rule_path.hpp"

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

static_assert(optim::Optimizer<optim::Muon> && optim::HasMomentum<optim::Muon>);

namespace {

at::Tensor of_rank(std::int64_t rows, std::int64_t columns) {
  return rule_path::filled({rows, columns}, [](double i) { return std::sin(0.37 * i * i + 1.3 * i + 0.4); });
}

}  // namespace

TEST_CASE("the iteration leaves directions and brings all sizes near 1") {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{8, 20}, {20, 8}, {6, 6}}) {
    const at::Tensor h = of_rank(rows, columns);
    const at::Tensor out = optim::detail::orthogonalized(h, 5);
    CHECK(out.scalar_type() == at::kBFloat16);
    REQUIRE(out.sizes() == h.sizes());
    const auto [u, s, v] = at::linalg_svd(h, false);
    const at::Tensor inner = u.t().mm(out.to(at::kFloat)).mm(v.t());  // diagonal where directions are kept
    const at::Tensor sizes = inner.diagonal();
    CHECK((inner - at::diag(sizes)).abs().max().item<double>() < 0.06);
    CHECK(sizes.min().item<double>() > 0.5);
    CHECK(sizes.max().item<double>() < 1.3);
    // Its own size has no effect.
    CHECK(optim::detail::orthogonalized(h * 1024.0, 5).equal(out));
  }
  CHECK(optim::detail::orthogonalized(at::zeros({3, 4}), 5).eq(0).all().item<bool>());
}

TEST_CASE("one iteration of a single row by hand") {
  // Its one singular value is 1: X = (a + b + c)·h/‖h‖ = 0.701·h/‖h‖.
  const at::Tensor out = optim::detail::orthogonalized(at::tensor({3.0f, 4.0f}).view({1, 2}), 1).to(at::kFloat);
  CHECK(out[0][0].item<double>() == Approx(0.701 * 0.6).epsilon(0.02));
  CHECK(out[0][1].item<double>() == Approx(0.701 * 0.8).epsilon(0.02));
}

TEST_CASE("which parameters are matrices of linear maps") {
  const auto moved = [](const std::string& name, std::vector<std::int64_t> shape) {
    return optim::detail::is_moved_whole({name, at::zeros(shape), true});
  };
  CHECK(moved("model.layers.0.mlp.up_proj.weight", {4, 3}));
  CHECK(moved("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", {4, 3}));
  CHECK_FALSE(moved("model.norm.weight", {4}));
  CHECK_FALSE(moved("model.embed_tokens.weight", {4, 3}));
  CHECK_FALSE(moved("lm_head.weight", {4, 3}));
  CHECK_FALSE(moved("base_model.model.lm_head.lora_A.weight", {4, 3}));
  CHECK_FALSE(moved("base_model.model.model.layers.0.mlp.up_proj.weight", {4, 3}));  // a module to save
  CHECK_FALSE(moved("base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector", {4}));
}

// Reference: axolotl-contribs-mit 0.0.6, Muon, on torch 2.11 (scripts/fixtures/optim_rules.py). Its products are of bfloat16, and
// nobody adds in the same order: torch.optim.Muon is 7e-4 away on this path of 2e-2.
TEST_CASE("Muon walks the path of axolotl's") {
  for (const bool nesterov : {true, false}) {
    const rule_path::Values expected =
        nesterov
            ? rule_path::Values{{"w",
                                 {0.993002057f, 0.75901109f, 0.167119667f, -0.500666738f, -0.93956852f, -0.929703295f,
                                  -0.491834998f, 0.184910715f, 0.774831891f, 0.998162389f, 0.750310481f, 0.149155632f,
                                  -0.51483655f, -0.945641577f, -0.924419641f}},
                                {"tall",
                                 {0.5349558f, -0.130840331f, -0.733926058f, -0.991966844f, -0.791403294f, -0.206507444f,
                                  0.464665323f, 0.920791268f, 0.945085824f, 0.522346973f, -0.147887424f, -0.74711293f}},
                                {"plain", {-0.426780015f, -0.906666338f, -0.937436283f, -0.563220263f}}}
            : rule_path::Values{
                  {"w",
                   {0.991554379f, 0.758033216f, 0.164685652f, -0.499699622f, -0.939502716f, -0.929953933f, -0.49354583f,
                    0.185571641f, 0.776892126f, 0.999878526f, 0.752434492f, 0.146490827f, -0.513966739f, -0.9472785f,
                    -0.923907936f}},
                  {"tall",
                   {0.533009589f, -0.13319017f, -0.733960807f, -0.990000069f, -0.792620063f, -0.204739615f,
                    0.463355303f, 0.91934669f, 0.945094943f, 0.522696257f, -0.149382427f, -0.74906826f}},
                  {"plain", {-0.426780015f, -0.906666338f, -0.937436283f, -0.563220263f}}};
    auto p = rule_path::parameters();
    const auto start = rule_path::parameters();
    optim::Muon muon(p, {.nesterov = nesterov, .weight_decay = 0.1});
    rule_path::walk(muon, p, 0, 5);
    std::vector<model::Parameter> matrices(p.begin(), p.begin() + 2), others(p.begin() + 2, p.end());
    CHECK(rule_path::difference(matrices, expected) < 1e-3);
    // axolotl decays the others, too: by 0.004 of a number in all.
    CHECK(rule_path::difference(others, expected) < 5e-3);
    CHECK((p[0].value - start[0].value).abs().max().item<double>() > 5e-3);
  }
}

TEST_CASE("what is no matrix is moved by AdamW, with the epsilon beside the uncorrected root") {
  // t = 1: m = 0.05·g, v = 0.05·g²; scale = 0.05/√0.05: p −= lr·(m/(√v + ε))/scale
  std::vector<model::Parameter> p = {{"model.norm.weight", at::ones({1}, at::kDouble).requires_grad_(), false}};
  optim::Muon muon(p, {.weight_decay = 0.5, .epsilon = 0.1});
  p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
  muon.step(0.1);
  const double m = 0.1, v = 0.2, scale = 0.05 / std::sqrt(0.05);
  CHECK(p[0].value.item<double>() == Approx(1 - 0.1 * m / (std::sqrt(v) + 0.1) / scale).epsilon(1e-12));
}

TEST_CASE("Muon repeats itself and leaves idle parameters alone; its momentum can be moved") {
  rule_path::expect_repeatable<optim::Muon>({.weight_decay = 0.1});
  rule_path::expect_idle<optim::Muon>({});
  rule_path::expect_rates<optim::Muon>({.weight_decay = 0.1});
  auto p = rule_path::parameters(), q = rule_path::parameters();
  optim::Muon one(p, {.momentum = 0.5}), other(q);
  other.set_momentum(0.5);
  rule_path::walk(one, p, 0, 3);
  rule_path::walk(other, q, 0, 3);
  CHECK(p[0].value.detach().equal(q[0].value.detach()));
}
