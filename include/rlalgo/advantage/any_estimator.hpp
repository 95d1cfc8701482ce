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
  requires(!std::same_as<A, AnyEstimator>) explicit AnyEstimator(A estimator) : call_(std::move(estimator)) {}
  Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    return call_(rewards, groups);
  }

 private:
  std::function<Estimate(std::span<const double>, const core::Groups&)> call_;
};

static_assert(AdvantageEstimator<AnyEstimator>);

}  // namespace rlalgo::advantage
