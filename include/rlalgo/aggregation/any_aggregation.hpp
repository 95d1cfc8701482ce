// An aggregation of any type behind one, for estimators of type A: for programs that choose theirs at run time.
#pragma once

#include <functional>
#include <utility>

#include <rlalgo/aggregation/concept.hpp>

namespace rlalgo::aggregation {

template <class A>
class AnyAggregation {
 public:
  template <AggregationFor<A> G>
  requires(!std::same_as<G, AnyAggregation>) explicit AnyAggregation(G aggregation) : call_(std::move(aggregation)) {}
  Result operator()(const A& estimator, const core::RewardTable& rewards, const core::Groups& groups) const {
    return call_(estimator, rewards, groups);
  }

 private:
  std::function<Result(const A&, const core::RewardTable&, const core::Groups&)> call_;
};

}  // namespace rlalgo::aggregation
