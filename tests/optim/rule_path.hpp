// The path of scripts/fixtures/optim_rules.py: three parameters, five steps, a falling rate; and what an optimizer's state must do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <rlalgo/model/policy.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

namespace rule_path {

using at::Tensor;
using rlalgo::model::Parameter;
using Values = std::map<std::string, std::vector<float>>;

inline const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& shapes() {
  static const std::vector<std::pair<std::string, std::vector<std::int64_t>>> all = {
      {"w", {3, 5}}, {"tall", {6, 2}}, {"plain", {4}}};
  return all;
}

template <class F>
Tensor filled(const std::vector<std::int64_t>& shape, const F& value) {
  Tensor out = at::zeros(shape, at::kDouble);
  auto* data = out.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) data[i] = value(static_cast<double>(i));
  return out.to(at::kFloat);
}

inline std::vector<Parameter> parameters(at::ScalarType dtype = at::kFloat) {
  std::vector<Parameter> out;
  for (const auto& [name, shape] : shapes()) {
    const auto j = static_cast<double>(out.size());
    out.push_back({name, filled(shape, [&](double i) { return std::cos(0.7 * i + j); }).to(dtype).requires_grad_(),
                   name != "plain"});
  }
  return out;
}

inline void set_gradients(std::vector<Parameter>& p, int t) {
  for (std::size_t k = 0; k < p.size(); ++k) {
    const auto j = static_cast<double>(k);
    p[k].value.mutable_grad() = filled(shapes()[k].second, [&](double i) {
                                  return std::sin(0.37 * i * i + 1.3 * t + j) * (1 + j);
                                }).to(p[k].value.scalar_type());
  }
}

template <class O>
void walk(O& optimizer, std::vector<Parameter>& p, int begin, int end) {
  for (int t = begin; t < end; ++t) {
    set_gradients(p, t);
    optimizer.step(1e-2 * (1 - t / 10.0));
    optimizer.zero_grad();
    CHECK_FALSE(p[0].value.grad().defined());
  }
}

inline double difference(const std::vector<Parameter>& p, const Values& expected) {
  double worst = 0;
  for (const Parameter& one : p) {
    const Tensor values = one.value.detach().to(at::kFloat).flatten();
    const std::vector<float>& list = expected.at(one.name);
    REQUIRE(values.numel() == static_cast<std::int64_t>(list.size()));
    for (std::int64_t i = 0; i < values.numel(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(values[i].item<float>()) - static_cast<double>(list[i])));
  }
  return worst;
}

// A run that is saved and loaded half-way repeats the other's bits; threads change none; bfloat16 has masters.
template <class O>
void expect_repeatable(const typename O::Config& config) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    auto whole = parameters(dtype), half = parameters(dtype);
    O first(whole, config), second(half, config);
    walk(first, whole, 0, 6);
    const int threads = at::get_num_threads();
    at::set_num_threads(threads == 1 ? 2 : 1);
    walk(second, half, 0, 3);
    at::set_num_threads(threads);
    auto resumed = parameters(dtype);
    O third(resumed, config);
    std::map<std::string, Tensor> saved;
    for (const auto& [name, value] : second.state()) saved[name] = value.clone();
    for (std::size_t k = 0; k < half.size(); ++k) resumed[k].value.detach().copy_(half[k].value.detach());
    third.load_state(saved);
    walk(third, resumed, 3, 6);
    for (std::size_t k = 0; k < whole.size(); ++k) CHECK(whole[k].value.detach().equal(resumed[k].value.detach()));
    const auto a = first.state(), b = third.state();
    REQUIRE(a.size() == b.size());
    bool masters = false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i].first == b[i].first);
      CHECK(a[i].second.equal(b[i].second));
      CHECK(a[i].second.scalar_type() == at::kFloat);
      masters = masters || a[i].first.ends_with(".master");
    }
    CHECK(masters == (dtype == at::kBFloat16));
    saved.erase(saved.begin());
    CHECK(rlalgo::support::lacks(rlalgo::support::raised_by([&] { third.load_state(saved); }), {"optim.1"}) == "");
  }
}

// A parameter with a factor moves as one that an optimizer of its own moves at that rate; the others as without factors.
template <class O>
void expect_rates(const typename O::Config& config) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    auto together = parameters(dtype), plain = parameters(dtype);
    O grouped(together, config), one_rate(plain, config);
    grouped.set_rates({{"tall", 16.0}, {"plain", 0.25}});
    walk(grouped, together, 0, 4);
    walk(one_rate, plain, 0, 4);
    CHECK(together[0].value.detach().equal(plain[0].value.detach()));
    for (const auto& [k, factor] : {std::pair{std::size_t{1}, 16.0}, std::pair{std::size_t{2}, 0.25}}) {
      CHECK_FALSE(together[k].value.detach().equal(plain[k].value.detach()));
      auto all = parameters(dtype);
      O alone({all[k]}, config);
      for (int t = 0; t < 4; ++t) {
        set_gradients(all, t);
        alone.step(1e-2 * (1 - t / 10.0) * factor);
        alone.zero_grad();
      }
      CHECK(together[k].value.detach().equal(all[k].value.detach()));
    }
    grouped.set_rates({});  // again one rate for all
    one_rate.set_rates({{"no such parameter", 2.0}});
    for (std::size_t k = 0; k < plain.size(); ++k) plain[k].value.detach().copy_(together[k].value.detach());
    std::map<std::string, Tensor> state;
    for (const auto& [name, value] : grouped.state()) state[name] = value.clone();
    one_rate.load_state(state);
    walk(grouped, together, 4, 6);
    walk(one_rate, plain, 4, 6);
    for (std::size_t k = 0; k < plain.size(); ++k) CHECK(together[k].value.detach().equal(plain[k].value.detach()));
  }
}

// Parts of a parameter move as the whole does: it serves for shards.
template <class O>
void expect_divisible(const typename O::Config& config) {
  auto whole = parameters();
  std::vector<Parameter> parts;
  const auto part = [](const Tensor& x, int half) {
    return x.flatten().narrow(0, half * 7, half == 0 ? 7 : 8).clone();
  };
  for (const int half : {0, 1})
    parts.push_back({"part" + std::to_string(half), part(whole[0].value.detach(), half).requires_grad_(), true});
  O one(whole, config), other(parts, config);
  for (int t = 0; t < 3; ++t) {
    set_gradients(whole, t);
    for (const int half : {0, 1}) parts[half].value.mutable_grad() = part(whole[0].value.grad(), half);
    one.step(1e-2);
    other.step(1e-2);
  }
  CHECK(at::cat({parts[0].value.detach(), parts[1].value.detach()}).equal(whole[0].value.detach().flatten()));
}

// A parameter that is not trained has no state, one without gradient is left alone.
template <class O>
void expect_idle(const typename O::Config& config) {
  auto p = parameters();
  p[2].value = p[2].value.detach();  // not trained
  const Tensor before = p[1].value.detach().clone();
  O optimizer(p, config);
  p[0].value.mutable_grad() = at::ones({3, 5});
  optimizer.step(1e-2);
  CHECK(p[1].value.detach().equal(before));
  for (const auto& [name, value] : optimizer.state()) {
    CHECK_FALSE(name.starts_with("plain"));
    if (name.starts_with("tall")) CHECK(value.eq(0).all().template item<bool>());
  }
}

}  // namespace rule_path
