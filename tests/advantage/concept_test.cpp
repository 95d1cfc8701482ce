#include <span>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/advantage/concept.hpp>

using namespace rlalgo;

namespace {
// The smallest estimator: the reward itself.
struct Identity {
  struct Config {};
  advantage::Estimate operator()(std::span<const double> rewards, const core::Groups&) const {
    return {{rewards.begin(), rewards.end()}, std::vector<double>(rewards.size(), 1.0)};
  }
};
struct NoConfig {
  advantage::Estimate operator()(std::span<const double>, const core::Groups&) const { return {}; }
};
struct KeepsState {
  struct Config {};
  advantage::Estimate operator()(std::span<const double>, const core::Groups&) { return {}; }
};
struct OneNumber {
  struct Config {};
  double operator()(std::span<const double>, const core::Groups&) const { return 0; }
};
}  // namespace

TEST_CASE("what is an advantage estimator, and what is not") {
  STATIC_REQUIRE(advantage::AdvantageEstimator<Identity>);
  STATIC_REQUIRE_FALSE(advantage::AdvantageEstimator<NoConfig>);
  STATIC_REQUIRE_FALSE(advantage::AdvantageEstimator<KeepsState>);
  STATIC_REQUIRE_FALSE(advantage::AdvantageEstimator<OneNumber>);
}
