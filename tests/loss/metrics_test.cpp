#include <rlalgo/loss/metrics.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

// The same entries, values and weights to the bit.
bool identical(const core::Metrics& a, const core::Metrics& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (std::size_t i = 0; i < a.entries().size(); ++i) {
    const auto &x = a.entries()[i], &y = b.entries()[i];
    if (x.name != y.name || x.kind != y.kind || std::memcmp(&x.value, &y.value, sizeof x.value) != 0 ||
        std::memcmp(&x.weight, &y.weight, sizeof x.weight) != 0)
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("what is read at the end of a step is what fetching every number at once gives, to the bit") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    core::Metrics at_once, late;
    at_once.mean("kl", 0.1, 3.0);  // of a stage before the losses
    late.mean("kl", 0.1, 3.0);
    loss::Metrics step;
    for (int part = 0; part < 7; ++part) {
      const auto x = at::randn({50}, type).mul_(1e3), weight = at::rand({50}, type);
      core::Metrics direct;
      loss::Metrics tensors;
      for (int repeat = 0; repeat < 2; ++repeat) {  // a name that one loss reports twice
        direct.mean("kl", x.sum().item<double>(), weight.sum().item<double>());
        tensors.mean("kl", x.sum(), weight.sum());
      }
      direct.minimum("low", x.min().item<double>());
      tensors.minimum("low", x.min());
      direct.maximum("high", x.max().item<double>());
      tensors.maximum("high", x.max());
      direct.last("last", x.max().item<double>());
      tensors.last("last", x.max());
      direct.mean("rows", 0.25, 50);
      tensors.mean("rows", 0.25, x.numel());
      at_once.merge(direct);
      step.merge(tensors);
      CHECK(identical(tensors.read(), direct));
    }
    step.read_into(late);
    INFO(c10::toString(type));
    CHECK(identical(late, at_once));
  }
}

TEST_CASE("a call whose condition is 0 was not made") {
  loss::Metrics metrics;
  metrics.mean("none", at::ones({}), at::zeros({}), at::zeros({}));
  metrics.minimum("none", at::ones({}), 0);
  metrics.maximum("some", at::full({}, 3.0), at::ones({}, at::kBool));
  CHECK(metrics.values() == std::vector<std::pair<std::string, double>>{{"some", 3.0}});
  metrics.mean("empty", 0.0, 0.0);
  CHECK(std::isnan(metrics.value("empty")));
  CHECK(std::isnan(metrics.value("none")));
}

TEST_CASE("numbers are taken without graph, and not read before they are asked for") {
  const auto x = at::ones({}).requires_grad_();
  loss::Metrics metrics;
  metrics.mean("x", x * 2, 1);
  CHECK(metrics.value("x") == 2.0);
  // A tensor without memory cannot be read: recording and merging do not try.
  const auto nothing = at::empty({}, at::TensorOptions().device(at::kMeta));
  loss::Metrics far, all;
  far.mean("x", nothing, nothing, nothing);
  all.merge(far);
  CHECK_THROWS_AS(all.read(), c10::Error);
}
