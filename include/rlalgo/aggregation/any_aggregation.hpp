// An aggregation of any type behind one, for estimators of type A: for programs that choose theirs at run time.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include <rlalgo/aggregation/concept.hpp>

namespace rlalgo::aggregation {

template <class A>
class AnyAggregation {
 public:
  template <AggregationFor<A> G>
  requires(!std::same_as<G, AnyAggregation>) explicit AnyAggregation(G aggregation)
      : needs_divergence_(aggregation::needs_divergence(aggregation)),
        within_groups_(aggregation::within_groups(aggregation)),
        call_([inner = std::move(aggregation)](const A& estimator, const core::RewardTable& rewards,
                                               const core::Groups& groups, std::span<const double> divergence) {
          return aggregate(inner, estimator, rewards, groups, divergence);
        }) {}
  static constexpr Hooks hooks{.needs_divergence = true, .within_groups = true};
  [[nodiscard]] bool needs_divergence() const noexcept { return needs_divergence_; }
  [[nodiscard]] bool within_groups() const noexcept { return within_groups_; }
  Result operator()(const A& estimator, const core::RewardTable& rewards, const core::Groups& groups,
                    std::span<const double> divergence = {}) const {
    return call_(estimator, rewards, groups, divergence);
  }

 private:
  bool needs_divergence_;
  bool within_groups_;
  std::function<Result(const A&, const core::RewardTable&, const core::Groups&, std::span<const double>)> call_;
};

}  // namespace rlalgo::aggregation
