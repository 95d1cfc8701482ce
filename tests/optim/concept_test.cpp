#include <support/catch.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/concept.hpp>

namespace {
using rlalgo::model::Parameter;
using rlalgo::optim::Optimizer;
using rlalgo::tensor::Tensor;

struct Descent {
  struct Config {};
  Descent(std::vector<Parameter>, Config) {}
  void step(double) {}
  void zero_grad() {}
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const { return {}; }
  void load_state(const std::map<std::string, Tensor>&) {}
};

struct WithoutState : Descent {
  using Descent::Descent;
  void state() const {}
};

struct WithoutParameters : Descent {
  WithoutParameters() : Descent({}, {}) {}
};

struct WithoutStep : Descent {
  using Descent::Descent;
  void step() {}
};
}  // namespace

TEST_CASE("an optimizer is made of parameters and a Config, updates, and has a state by name") {
  STATIC_REQUIRE(Optimizer<rlalgo::optim::AdamW>);
  STATIC_REQUIRE(Optimizer<Descent>);
  STATIC_REQUIRE_FALSE(Optimizer<WithoutState>);
  STATIC_REQUIRE_FALSE(Optimizer<WithoutParameters>);
  STATIC_REQUIRE_FALSE(Optimizer<WithoutStep>);
  STATIC_REQUIRE(rlalgo::optim::HasMomentum<rlalgo::optim::AdamW>);
  STATIC_REQUIRE_FALSE(rlalgo::optim::HasMomentum<Descent>);
}
