// expect: the fourth part is not an Aggregation for this estimator
#include <support/bandit.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/loss/cross_entropy.hpp>
#include <rlalgo/trainer/online.hpp>

using namespace rlalgo;

// An aggregation serves an estimator when it can call it.
struct NeedsWhiten {
  template <class A>
  requires requires(const A& estimator) { estimator.whiten(); }
  aggregation::Result operator()(const A&, const core::RewardTable&, const core::Groups&) const { return {}; }
};

struct Estimator : advantage::GroupRelative<> {
#ifdef RLALGO_VALID
  void whiten() const {}
#endif
};

using Trainer = trainer::OnlineTrainer<loss::CrossEntropy, Estimator, rlalgo::support::BanditPulls, NeedsWhiten>;
static_assert(sizeof(Trainer) > 0);
