// expect: constraints not satisfied
// expect: required for the satisfaction of .AggregationFor<
#include <span>

#include <rlalgo/aggregation/concept.hpp>

// An aggregation serves an estimator when it can call it.
struct NeedsWhiten {
  template <class A>
  requires requires(const A& estimator) { estimator.whiten(); }
  rlalgo::aggregation::Result operator()(const A&, const rlalgo::core::RewardTable&,
                                         const rlalgo::core::Groups&) const {
    return {};
  }
};

struct Estimator {
#ifdef RLALGO_VALID
  void whiten() const {}
#endif
};

template <class A, rlalgo::aggregation::AggregationFor<A> G>
struct Trained {};

Trained<Estimator, NeedsWhiten> trained;
