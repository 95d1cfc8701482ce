#include <support/adamw_8bit_golden.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace {
namespace bitsandbytes = rlalgo::support::bitsandbytes;
using at::Tensor;
using rlalgo::model::Parameter;
using rlalgo::optim::AdamW;
using rlalgo::optim::AdamW8bit;
using rlalgo::optim::AdamW8bitConfig;

Tensor numbers(at::IntArrayRef shape, std::uint64_t salt) {
  const Tensor out = at::empty(shape, at::kFloat);
  const auto values = bitsandbytes::numbers(static_cast<std::size_t>(out.numel()), salt);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<float>());
  return out;
}

// Decayed, 16¼ blocks; not decayed, 17.6 blocks; too small for blocks.
std::vector<Parameter> three_parameters(at::ScalarType type = at::kFloat) {
  return {{"wide", numbers({64, 65}, 0).to(type).requires_grad_(), true},
          {"long", numbers({4500}, 1).to(type).requires_grad_(), false},
          {"short", numbers({300}, 2).to(type).requires_grad_(), false}};
}

void set_gradients(std::vector<Parameter>& parameters, int t) {
  std::uint64_t salt = 0;
  for (Parameter& p : parameters)
    p.value.mutable_grad() =
        numbers(p.value.sizes(), 100 + 10 * static_cast<std::uint64_t>(t) + salt++).to(p.value.scalar_type());
}

std::map<std::string, Tensor> cloned(const AdamW8bit& optimizer) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, tensor] : optimizer.state()) out[name] = tensor.clone();
  return out;
}

template <class T>
std::vector<T> list(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}
}  // namespace

TEST_CASE("two updates of one block by hand") {
  // g = (2, 1): m = (0.2, 0.1), v = (0.004, 0.001), m̂ = g, √v̂ = g: p = 1·(1 − 0.1·0.5) − 0.1 = 0.85, for both
  std::vector<Parameter> p = {{"w", at::ones({2}).requires_grad_(), true}};
  AdamW8bit optimizer(p, {.adam = {.epsilon = 1e-30, .weight_decay = 0.5}, .min_elements = 1});
  p[0].value.mutable_grad() = at::tensor({2.0F, 1.0F});
  optimizer.step(0.1);
  CHECK(p[0].value.detach()[0].item<double>() == Approx(0.85).epsilon(1e-6));
  CHECK(p[0].value.detach()[1].item<double>() == Approx(0.85).epsilon(1e-6));
  const auto state = cloned(optimizer);
  REQUIRE(state.size() == 5);
  CHECK(list<float>(state.at("w.exp_avg_scale"))[0] == Approx(0.2).epsilon(1e-6));
  CHECK(list<float>(state.at("w.exp_avg_sq_scale"))[0] == Approx(0.004).epsilon(1e-6));
  CHECK(list<std::uint8_t>(state.at("w.exp_avg"))[0] == 255);
  CHECK(list<std::uint8_t>(state.at("w.exp_avg_sq"))[0] == 255);
  CHECK(state.at("w.step").item<float>() == 1.0F);
  // The second: m/s = 0.5 is held as 0.1 + 28.5·0.9/64 = 0.50078125, v/s = 0.25 as 0.1 + 21.5·0.9/128 = 0.251171875
  p[0].value.mutable_grad() = at::zeros({2});
  optimizer.step(0.1);
  const double m = 0.9 * 0.2 * 0.50078125, v = 0.999 * 0.004 * 0.251171875;
  const double expected = 0.85 * 0.95 - 0.1 * (m / (1 - 0.81)) / std::sqrt(v / (1 - 0.999 * 0.999));
  CHECK(p[0].value.detach()[1].item<double>() == Approx(expected).epsilon(1e-5));
}

// Reference: bitsandbytes 0.50, optim.AdamW8bit on a CPU: 8 steps of a falling rate, a group with and one without decay.
TEST_CASE("AdamW in 8 bits walks the path of bitsandbytes' AdamW8bit") {
  std::vector<Parameter> p = three_parameters();
  AdamW8bit optimizer(p, {.adam = {.weight_decay = 0.1}});
  for (int t = 0; t < 8; ++t) {
    set_gradients(p, t);
    optimizer.step(1e-2 * (1 - t / 16.0));
  }
  const auto path = bitsandbytes::golden().at("path");
  const auto state = cloned(optimizer);
  for (const Parameter& one : p) {
    INFO(one.name);
    const auto& golden = path.at(one.name);
    const auto weights = list<float>(one.value.view({-1}).slice(0, 0, c10::nullopt, 9));
    const auto expected = bitsandbytes::unpacked<float>(golden.at("weights"));
    REQUIRE(weights.size() == expected.size());
    for (std::size_t i = 0; i < weights.size(); ++i)
      CHECK(weights[i] == Approx(expected[i]).epsilon(2e-6).margin(1e-8));
    if (!golden.contains("exp_avg")) continue;
    for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
      const std::string name = one.name + "." + moment;
      CHECK(list<std::uint8_t>(state.at(name)) == bitsandbytes::unpacked<std::uint8_t>(golden.at(moment)));
      const auto scales = list<float>(state.at(name + "_scale"));
      const auto theirs = bitsandbytes::unpacked<float>(golden.at(std::string(moment) + "_scale"));
      REQUIRE(scales.size() == theirs.size());
      for (std::size_t i = 0; i < scales.size(); ++i) CHECK(scales[i] == Approx(theirs[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("small parameters, embeddings and float64 have AdamW's moments, bit by bit") {
  const auto make = [] {
    std::vector<Parameter> out = three_parameters();
    out[0].name = "model.embed_tokens.weight";
    out[1].value = out[1].value.detach().to(at::kDouble).requires_grad_();
    out.push_back({"frozen", at::ones({5000}), true});
    return out;
  };
  std::vector<Parameter> a = make(), b = make();
  AdamW8bit optimizer(a, {.adam = {.weight_decay = 0.1}});
  AdamW reference(b, {.weight_decay = 0.1});
  for (int t = 0; t < 3; ++t) {
    a.pop_back();
    b.pop_back();
    set_gradients(a, t);
    set_gradients(b, t);
    a.push_back({"frozen", at::ones({5000}), true});
    b.push_back({"frozen", at::ones({5000}), true});
    optimizer.step(1e-2);
    reference.step(1e-2);
  }
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].value.detach().equal(b[i].value.detach()));
  const auto x = optimizer.state(), y = reference.state();
  REQUIRE(x.size() == y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i].first == y[i].first);
    CHECK(x[i].second.equal(y[i].second));
  }
}

TEST_CASE("moments of a parameter take two bytes an element and eight a block") {
  std::vector<Parameter> p = {{"w", at::zeros({256, 100}).requires_grad_(), true}};
  const AdamW8bit optimizer(p);
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : optimizer.state()) bytes += tensor.nbytes();
  CHECK(bytes == 2 * 25600 + 8 * 100 + 4);
}

TEST_CASE("one thread and several give the same bits") {
  std::vector<Parameter> one = {{"w", numbers({300, 400}, 3).requires_grad_(), true}};
  std::vector<Parameter> several = {{"w", numbers({300, 400}, 3).requires_grad_(), true}};
  std::optional<AdamW8bit> alone;
  {
    const rlalgo::tensor::ThreadLimit limit(1e-9);
    REQUIRE(rlalgo::tensor::available_threads() == 1);
    alone.emplace(one, AdamW8bitConfig{.adam = {.weight_decay = 0.1}});
  }
  AdamW8bit together(several, {.adam = {.weight_decay = 0.1}});
  for (int t = 0; t < 5; ++t) {
    set_gradients(one, t);
    set_gradients(several, t);
    alone->step(1e-2);
    together.step(1e-2);
  }
  CHECK(one[0].value.detach().equal(several[0].value.detach()));
  const auto a = alone->state(), b = together.state();
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].second.equal(b[i].second));
}

TEST_CASE("a run continued from exported 8-bit state equals the uninterrupted run bit by bit") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<Parameter> whole = three_parameters(type), resumed = three_parameters(type);
    AdamW8bit optimizer(whole, {.adam = {.weight_decay = 0.1}});
    std::map<std::string, Tensor> saved;
    for (int t = 0; t < 6; ++t) {
      if (t == 3) {
        saved = cloned(optimizer);
        for (std::size_t i = 0; i < whole.size(); ++i) resumed[i].value.detach().copy_(whole[i].value.detach());
      }
      set_gradients(whole, t);
      optimizer.step(1e-3);
      optimizer.zero_grad();
      CHECK_FALSE(whole[0].value.grad().defined());
      CHECK_FALSE(whole[2].value.grad().defined());
    }
    CHECK(saved.at("wide.exp_avg").scalar_type() == at::kByte);
    CHECK(saved.contains("wide.master") == (type == at::kBFloat16));
    CHECK(saved.contains("short.master") == (type == at::kBFloat16));
    AdamW8bit other(resumed, {.adam = {.weight_decay = 0.1}});
    other.load_state(saved);
    for (int t = 3; t < 6; ++t) {
      set_gradients(resumed, t);
      other.step(1e-3);
    }
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(whole[i].value.detach().equal(resumed[i].value.detach()));
    const auto a = optimizer.state(), b = other.state();
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].second.equal(b[i].second));
  }
}

TEST_CASE("bfloat16 parameters follow float32 masters: 8-bit moments lose no small update") {
  std::vector<Parameter> low = three_parameters(at::kBFloat16), full = three_parameters(at::kBFloat16);
  for (Parameter& p : full) p.value = p.value.detach().to(at::kFloat).requires_grad_();
  AdamW8bit optimizer(low), exact(full);
  for (int t = 0; t < 20; ++t) {
    set_gradients(low, t);
    for (std::size_t i = 0; i < full.size(); ++i) full[i].value.mutable_grad() = low[i].value.grad().to(at::kFloat);
    optimizer.step(1e-4);
    exact.step(1e-4);
  }
  for (std::size_t i = 0; i < low.size(); ++i)
    CHECK(low[i].value.detach().equal(full[i].value.detach().to(at::kBFloat16)));
}

TEST_CASE("8-bit moments leave parameters without gradient alone, and take any memory layout of a gradient") {
  std::vector<Parameter> p = three_parameters(), transposed = three_parameters();
  AdamW8bit optimizer(p), other(transposed);
  set_gradients(p, 0);
  set_gradients(transposed, 0);
  transposed[0].value.mutable_grad() = transposed[0].value.grad().t().contiguous().t();
  REQUIRE_FALSE(transposed[0].value.grad().is_contiguous());
  p[1].value.mutable_grad() = transposed[1].value.mutable_grad() = Tensor();
  const Tensor before = p[1].value.detach().clone();
  optimizer.step(0.1);
  other.step(0.1);
  CHECK(p[1].value.detach().equal(before));
  CHECK(cloned(optimizer).at("long.step").item<float>() == 0.0F);
  CHECK(cloned(optimizer).at("wide.step").item<float>() == 1.0F);
  CHECK(p[0].value.detach().equal(transposed[0].value.detach()));
}

TEST_CASE("a momentum that is moved counts for 8-bit moments and for the others") {
  std::vector<Parameter> p = {{"large", at::ones({4096}).requires_grad_(), false},
                              {"small", at::ones({1}).requires_grad_(), false}};
  AdamW8bit optimizer(p, {.adam = {.epsilon = 1e-30}});
  for (Parameter& one : p) one.value.mutable_grad() = at::full_like(one.value.detach(), 2.0);
  optimizer.step(0.1);  // m = 0.2, m̂ = 2: p = 0.9
  optimizer.set_momentum(0.5);
  optimizer.step(0.1);  // m = 0.5·0.2 + 0.5·2 = 1.1, m̂ = 1.1/(1 − 0.5²), v̂ = 4
  for (const Parameter& one : p)
    CHECK(one.value.detach()[0].item<double>() == Approx(0.9 - 0.1 * (1.1 / 0.75) / 2).epsilon(1e-5));
  STATIC_REQUIRE(rlalgo::optim::Optimizer<AdamW8bit>);
  STATIC_REQUIRE(rlalgo::optim::HasMomentum<AdamW8bit>);
}

TEST_CASE("8-bit state that does not fit is refused by number and changes nothing") {
  using Catch::Matchers::Contains;
  std::vector<Parameter> p = three_parameters();
  AdamW8bit optimizer(p);
  set_gradients(p, 0);
  optimizer.step(0.1);
  const auto before = cloned(optimizer);
  auto state = before;
  for (auto& [name, tensor] : state) tensor = at::zeros_like(tensor);
  const auto with = [&](const std::string& name, Tensor tensor) {
    auto copy = state;
    copy[name] = std::move(tensor);
    return copy;
  };
  CHECK_THROWS_WITH(optimizer.load_state(with("wide.exp_avg", at::zeros({64, 65}))),
                    Contains("[rlalgo.optim.1]") && Contains("wide.exp_avg [64, 65] Float"));
  CHECK_THROWS_WITH(optimizer.load_state(with("wide.exp_avg_scale", at::zeros({16}))), Contains("[17] Float"));
  CHECK_THROWS_WITH(optimizer.load_state(with("other.step", at::zeros({}))), Contains("other.step of no trained"));
  std::map<std::string, Tensor> full;
  std::vector<Parameter> q = three_parameters();
  for (const auto& [name, tensor] : AdamW(q).state()) full[name] = tensor;
  CHECK_THROWS_WITH(optimizer.load_state(full), Contains("[rlalgo.optim.1]"));
  for (const auto& [name, tensor] : optimizer.state()) CHECK(tensor.equal(before.at(name)));
  CHECK_THROWS_WITH(AdamW8bit({{"t", at::zeros({64, 65}).t().requires_grad_(), true}}), Contains("[rlalgo.optim.4]"));
}

TEST_CASE("8-bit moments reach the minimum that AdamW reaches") {
  // least squares in 4,160 unknowns from their own noisy gradients
  const Tensor target = numbers({64, 65}, 5);
  const auto distance = [&](auto make) {
    std::vector<Parameter> p = {{"w", at::zeros({64, 65}).requires_grad_(), false}};
    auto optimizer = make(p);
    for (int t = 0; t < 200; ++t) {
      p[0].value.mutable_grad() =
          p[0].value.detach() - target + 0.1 * numbers({64, 65}, 1000 + static_cast<std::uint64_t>(t));
      optimizer.step(0.02 * (1 - t / 200.0));
    }
    return p[0].value.detach().sub(target).norm().template item<double>();
  };
  const double whole = distance([](std::vector<Parameter>& p) { return AdamW(p); });
  const double eight = distance([](std::vector<Parameter>& p) { return AdamW8bit(p); });
  const double start = target.norm().item<double>();
  CHECK(whole < 0.1 * start);
  CHECK(eight < 0.1 * start);
}
