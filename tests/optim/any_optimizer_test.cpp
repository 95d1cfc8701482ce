#include <support/catch.hpp>

#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/optim/any_optimizer.hpp>

namespace {
using rlalgo::model::Parameter;
using rlalgo::optim::AdamW;
using rlalgo::optim::AdamW8bit;
using rlalgo::optim::AnyOptimizer;

std::vector<Parameter> large() { return {{"w", at::arange(4096, at::kFloat).sin().requires_grad_(), true}}; }

template <class A, class B>
void expect_same_path(A one, std::vector<Parameter> p, B other, std::vector<Parameter> q) {
  for (int t = 0; t < 4; ++t) {
    for (auto* list : {&p, &q}) (*list)[0].value.mutable_grad() = at::arange(4096, at::kFloat).add(t).cos();
    if (t == 2) {
      one.set_momentum(0.5);
      other.set_momentum(0.5);
    }
    one.step(1e-2);
    other.step(1e-2);
    one.zero_grad();
    CHECK_FALSE(p[0].value.grad().defined());
  }
  CHECK(p[0].value.detach().equal(q[0].value.detach()));
  const auto a = one.state(), b = other.state();
  REQUIRE(a.size() == b.size());
  std::map<std::string, at::Tensor> zeros;
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].first == b[i].first);
    CHECK(a[i].second.equal(b[i].second));
    zeros[a[i].first] = at::zeros_like(a[i].second);
  }
  one.load_state(zeros);
  CHECK(one.state()[0].second.eq(0).all().template item<bool>());
}
}  // namespace

TEST_CASE("any optimizer is AdamW unless it is told") {
  const auto p = large(), q = large();
  expect_same_path(AnyOptimizer(p), p, AdamW(q), q);
}

TEST_CASE("any optimizer does what the one that it was made of does") {
  const auto p = large(), q = large();
  const AnyOptimizer::Config config = AnyOptimizer::of<AdamW8bit>({.adam = {.weight_decay = 0.1}});
  expect_same_path(AnyOptimizer(p, config), p, AdamW8bit(q, {.adam = {.weight_decay = 0.1}}), q);
  CHECK(AnyOptimizer(p, config).state()[0].second.scalar_type() == at::kByte);
}
