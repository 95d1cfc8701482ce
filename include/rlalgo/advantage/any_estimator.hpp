// An advantage estimator of any type behind one: for programs that choose theirs at run time.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include <rlalgo/advantage/concept.hpp>

namespace rlalgo::advantage {

class AnyEstimator {
 public:
  struct Config {};

  template <AdvantageEstimator A>
  requires(!std::same_as<A, AnyEstimator>) explicit AnyEstimator(A estimator)
      : within_groups_(advantage::within_groups(estimator)), call_(std::move(estimator)) {}
  static constexpr Hooks hooks{.within_groups = true};
  [[nodiscard]] bool within_groups() const noexcept { return within_groups_; }
  Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    return call_(rewards, groups);
  }

 private:
  bool within_groups_;
  std::function<Estimate(std::span<const double>, const core::Groups&)> call_;
};

static_assert(AdvantageEstimator<AnyEstimator>);

}  // namespace rlalgo::advantage
