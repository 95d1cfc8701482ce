#include <support/catch.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/clip.hpp>

namespace {
using at::Tensor;
using rlalgo::model::Parameter;
using rlalgo::optim::AdamW;
using rlalgo::optim::AdamWConfig;

Tensor filled(std::int64_t size, at::ScalarType dtype, double (*value)(double, double, double), double t, double j) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(value(static_cast<double>(i), t, j));
  return at::tensor(values, at::kDouble).to(dtype);
}
double start(double i, double, double j) { return std::cos(0.7 * i + j); }
double slope(double i, double t, double j) { return std::sin(0.37 * i + 1.3 * t + j) * (1 + j); }

std::vector<Parameter> two_parameters(at::ScalarType dtype) {
  return {{"decayed", filled(5, dtype, start, 0, 0).requires_grad_(), true},
          {"plain", filled(3, dtype, start, 0, 1).requires_grad_(), false}};
}

void set_gradients(std::vector<Parameter>& parameters, double t) {
  double j = 0;
  for (Parameter& p : parameters)
    p.value.mutable_grad() = filled(p.value.numel(), p.value.scalar_type(), slope, t, j++);
}

std::vector<double> values(const std::vector<Parameter>& parameters) {
  std::vector<double> out;
  for (const Parameter& p : parameters)
    for (std::int64_t i = 0; i < p.value.numel(); ++i) out.push_back(p.value.detach()[i].item<double>());
  return out;
}
}  // namespace

TEST_CASE("one AdamW step by hand") {
  // g = 2: m = 0.2, v = 0.004, m̂ = 2, v̂ = 4; p = 1·(1 − 0.1·0.5) − 0.1·2/(2 + ε) = 0.95 − 0.1
  std::vector<Parameter> p = {{"w", at::ones({1}, at::kDouble).requires_grad_(), true}};
  AdamW optimizer(p, {.epsilon = 1e-30, .weight_decay = 0.5});
  p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
  optimizer.step(0.1);
  CHECK(p[0].value.item<double>() == Approx(0.85).epsilon(1e-14));
  const auto state = optimizer.state();
  CHECK(state[0].second.item<double>() == Approx(0.2).epsilon(1e-14));
  CHECK(state[1].second.item<double>() == Approx(0.004).epsilon(1e-14));
  CHECK(state[2].second.item<float>() == 1.0f);
}

TEST_CASE("a momentum that is moved counts from the next update on, its correction included") {
  std::vector<Parameter> p = {{"w", at::ones({1}, at::kDouble).requires_grad_(), false}};
  AdamW optimizer(p, {.epsilon = 1e-30});
  p[0].value.mutable_grad() = at::full({1}, 2.0, at::kDouble);
  optimizer.step(0.1);  // m = 0.2, m̂ = 2: p = 0.9
  optimizer.set_momentum(0.5);
  optimizer.step(0.1);  // m = 0.5·0.2 + 0.5·2 = 1.1, m̂ = 1.1/(1 − 0.5²), v̂ = 4
  CHECK(p[0].value.item<double>() == Approx(0.9 - 0.1 * (1.1 / 0.75) / 2).epsilon(1e-14));
}

// Reference: torch 2.11 (Python), torch.optim.AdamW(fused=True) with a decayed and an undecayed group, 25 steps of
// clip_grad_norm_(1.5) and a falling rate, on the same start values and gradients.
TEST_CASE("AdamW and clipping walk the path of torch.optim.AdamW bit by bit") {
  const auto run = [](at::ScalarType dtype, double& norm) {
    std::vector<Parameter> p = two_parameters(dtype);
    AdamW optimizer(p, {.weight_decay = 0.1});
    for (int t = 0; t < 25; ++t) {
      set_gradients(p, t);
      std::vector<Tensor> gradients = {p[0].value.grad(), p[1].value.grad()};
      norm = rlalgo::optim::clip_grad_norm(gradients, 1.5);
      optimizer.step(1e-2 * (1 - t / 50.0));
    }
    return values(p);
  };
  double norm = 0;
  CHECK(run(at::kFloat, norm) == std::vector<double>{0x1.ea78860000000p-1, 0x1.6e056a0000000p-1, 0x1.0c36a60000000p-3,
                                                     -0x1.0e7fa40000000p-1, -0x1.e6bbfe0000000p-1, 0x1.02da660000000p-1,
                                                     -0x1.435ad40000000p-3, -0x1.83a0480000000p-1});
  CHECK(norm == 0x1.abbdcc0000000p+1);
  CHECK(run(at::kDouble, norm) ==
        std::vector<double>{0x1.ea7888eb75cfdp-1, 0x1.6e056c55a3eccp-1, 0x1.0c36a1e4e773cp-3, -0x1.0e7f9fcfda448p-1,
                            -0x1.e6bc0014a666ap-1, 0x1.02da6b17b213dp-1, -0x1.435ad597c788bp-3, -0x1.83a04b3d4a4bfp-1});
  CHECK(norm == 0x1.abbdcb75fac18p+1);
}

TEST_CASE("a run continued from exported state equals the uninterrupted run bit by bit") {
  std::vector<Parameter> whole = two_parameters(at::kFloat);
  AdamW optimizer(whole, {.weight_decay = 0.1});
  std::map<std::string, Tensor> saved;
  std::vector<Parameter> resumed;
  for (int t = 0; t < 6; ++t) {
    if (t == 3) {
      for (const auto& [name, tensor] : optimizer.state()) saved[name] = tensor.clone();
      for (const Parameter& p : whole)
        resumed.push_back({p.name, p.value.detach().clone().requires_grad_(), p.weight_decay});
    }
    set_gradients(whole, t);
    optimizer.step(1e-2);
  }
  AdamW other(resumed, {.weight_decay = 0.1});
  other.load_state(saved);
  for (int t = 3; t < 6; ++t) {
    set_gradients(resumed, t);
    other.step(1e-2);
  }
  CHECK(values(resumed) == values(whole));
}

TEST_CASE("parameters without gradient or frozen are left alone") {
  std::vector<Parameter> p = two_parameters(at::kFloat);
  p.push_back({"frozen", at::ones({2}), true});
  AdamW optimizer(p, {.weight_decay = 0.5});
  const auto before = values(p);
  set_gradients(p, 0);
  p[1].value.mutable_grad() = Tensor();
  optimizer.step(0.1);
  const auto after = values(p);
  CHECK(after[0] != before[0]);
  for (std::size_t i = 5; i < after.size(); ++i) CHECK(after[i] == before[i]);
  REQUIRE(optimizer.state().size() == 6);
  CHECK(optimizer.state()[5].first == "plain.step");
  CHECK(optimizer.state()[5].second.item<float>() == 0.0f);
  optimizer.zero_grad();
  CHECK_FALSE(p[0].value.grad().defined());
}

TEST_CASE("a gradient in another memory layout gives the same update") {
  const Tensor start = at::arange(6, at::kFloat).view({2, 3});
  const Tensor gradient = at::arange(6, at::kFloat).view({2, 3}).sin();
  std::vector<Parameter> straight = {{"w", start.clone().requires_grad_(), false}};
  std::vector<Parameter> transposed = {{"w", start.clone().requires_grad_(), false}};
  straight[0].value.mutable_grad() = gradient;
  transposed[0].value.mutable_grad() = gradient.t().contiguous().t();
  AdamW(straight).step(0.1);
  AdamW(transposed).step(0.1);
  CHECK(straight[0].value.equal(transposed[0].value));
}

TEST_CASE("state that does not fit is refused by number and changes nothing") {
  using Catch::Matchers::Contains;
  std::vector<Parameter> p = two_parameters(at::kFloat);
  AdamW optimizer(p);
  set_gradients(p, 0);
  optimizer.step(0.1);
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) state[name] = at::zeros_like(tensor);
  const auto with = [&](const std::string& name, Tensor tensor) {
    auto copy = state;
    if (tensor.defined())
      copy[name] = tensor;
    else
      copy.erase(name);
    return copy;
  };
  CHECK_THROWS_WITH(optimizer.load_state(with("plain.exp_avg", {})),
                    Contains("[rlalgo.optim.1]") && Contains("no tensor plain.exp_avg"));
  CHECK_THROWS_WITH(optimizer.load_state(with("plain.exp_avg", at::zeros({4}))), Contains("plain.exp_avg [4] Float"));
  CHECK_THROWS_WITH(optimizer.load_state(with("plain.exp_avg", at::zeros({3}, at::kDouble))), Contains("[3] Double"));
  CHECK_THROWS_WITH(optimizer.load_state(with("other.exp_avg", at::zeros({3}))),
                    Contains("other.exp_avg of no trained"));
  CHECK(optimizer.state()[2].second.item<float>() == 1.0f);
  CHECK_THROWS_WITH(AdamW({{"t", at::zeros({2, 3}).t().requires_grad_(), true}}), Contains("[rlalgo.optim.4]"));
}

TEST_CASE("bfloat16 parameters follow their float32 masters, and a resumed run follows the same bits") {
  const auto gradients = [](std::vector<Parameter>& p, double t) { set_gradients(p, t); };
  std::vector<Parameter> low = two_parameters(at::kBFloat16), full = two_parameters(at::kBFloat16);
  for (Parameter& p : full) p.value = p.value.detach().to(at::kFloat).requires_grad_();
  AdamW optimizer(low, {.weight_decay = 0.1}), exact(full, {.weight_decay = 0.1});
  const auto step = [&](AdamW& o, std::vector<Parameter>& p, int t) {
    gradients(p, t);
    if (p[0].value.scalar_type() == at::kFloat)  // the gradients that a bfloat16 model has
      for (Parameter& q : p) q.value.mutable_grad() = q.value.grad().to(at::kBFloat16).to(at::kFloat);
    o.step(1e-3);  // less than half the spacing of bfloat16 near 1: 2⁻⁸
  };
  for (int t = 0; t < 60; ++t) {
    step(optimizer, low, t);
    step(exact, full, t);
  }
  for (std::size_t i = 0; i < low.size(); ++i) {
    CHECK(low[i].value.scalar_type() == at::kBFloat16);
    CHECK(low[i].value.detach().equal(full[i].value.detach().to(at::kBFloat16)));
  }
  CHECK(full[0].value.detach().sub(filled(5, at::kFloat, start, 0, 0)).abs().max().item<double>() > 5e-3);

  std::map<std::string, Tensor> saved;
  for (const auto& [name, value] : optimizer.state()) saved[name] = value.clone();
  REQUIRE(saved.size() == 8);
  CHECK(saved.at("plain.master").scalar_type() == at::kFloat);
  CHECK(saved.at("plain.exp_avg").scalar_type() == at::kFloat);
  std::vector<Parameter> resumed = two_parameters(at::kBFloat16);  // the optimizer's state alone says what they are
  AdamW again(resumed, {.weight_decay = 0.1});
  again.load_state(saved);
  for (int t = 60; t < 70; ++t) {
    step(optimizer, low, t);
    step(again, resumed, t);
  }
  for (std::size_t i = 0; i < low.size(); ++i) CHECK(low[i].value.detach().equal(resumed[i].value.detach()));
  const auto a = optimizer.state(), b = again.state();
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].second.equal(b[i].second));
  AdamW other(full, {});
  CHECK_THROWS_AS(other.load_state(saved), rlalgo::core::Error);  // masters of no parameter
}

TEST_CASE("masters have the bits that ATen's kernel gives float32 weights, whatever kernel updates them") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const double beta1 : {0.9, 0.4})
      for (const std::int64_t size : {16L, 48L, 70'000L}) {
        auto generator = at::make_generator<at::CPUGeneratorImpl>(size);
        const Tensor begin = at::randn({size}, generator, at::kFloat).to(type);
        std::vector<Parameter> low{{"w", begin.clone().requires_grad_(), true}},
            full{{"w", begin.to(at::kFloat).requires_grad_(), true}};
        const AdamWConfig config{.beta1 = beta1, .weight_decay = 0.1};
        AdamW optimizer(low, config), exact(full, config);
        for (int t = 0; t < 20; ++t) {
          const Tensor gradient = at::randn({size}, generator, at::kFloat).mul_(std::pow(10.0, -t % 7)).to(type);
          low[0].value.mutable_grad() = gradient;
          full[0].value.mutable_grad() = gradient.to(at::kFloat);
          optimizer.step(1e-2);
          exact.step(1e-2);
        }
        CAPTURE(type, beta1, size);
        const auto a = optimizer.state(), b = exact.state();
        for (std::size_t i = 0; i < b.size(); ++i) CHECK(a[i].second.equal(b[i].second));
        CHECK(a.back().second.equal(full[0].value.detach()));
        CHECK(low[0].value.detach().equal(full[0].value.detach().to(type)));
      }
}
