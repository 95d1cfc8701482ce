#include <support/catch.hpp>

#include <ATen/ops/tensor.h>

#include <rlalgo/loss/any_loss.hpp>

using namespace rlalgo::loss;

namespace {
struct Scaled {
  struct Config {};
  static constexpr Needs needs{.old_log_prob = true};
  static constexpr RowKind rows = RowKind::samples;
  double factor = 1.0;
  Result operator()(const Scored& s, const Counts& counts) const {
    return {s.log_prob.sum() * factor / counts.tokens, {}};
  }
};
struct Other : Scaled {
  static constexpr Needs needs{.reference_log_prob = true};
};
}  // namespace

TEST_CASE("an erased loss has the needs, the rows and the value of the loss inside") {
  STATIC_REQUIRE(Loss<AnyLossLike<Scaled>>);
  STATIC_REQUIRE(AnyLossLike<Scaled>::needs == Scaled::needs);
  const AnyLossLike<Scaled> loss(Scaled{.factor = 3.0});
  Scored scored;
  scored.log_prob = at::tensor({-1.0, -2.0}, at::kDouble);
  CHECK(loss(scored, {.rows = 1, .tokens = 2}).value.item<double>() == -4.5);
}

TEST_CASE("losses with other needs do not fit") {
  STATIC_REQUIRE(std::constructible_from<AnyLossLike<Scaled>, Scaled>);
  STATIC_REQUIRE_FALSE(std::constructible_from<AnyLossLike<Scaled>, Other>);
}
