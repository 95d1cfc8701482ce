// expect: the second part is not an AdvantageEstimator
#include <support/bandit.hpp>

#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/cross_entropy.hpp>
#include <rlalgo/trainer/online.hpp>

using namespace rlalgo;

// An estimator keeps no state: its call must be const.
struct RunningMean {
  struct Config {};
#ifdef RLALGO_VALID
  advantage::Estimate operator()(std::span<const double>, const core::Groups&) const { return {}; }
#else
  advantage::Estimate operator()(std::span<const double>, const core::Groups&) { return {}; }
#endif
};

using Trainer = trainer::OnlineTrainer<loss::CrossEntropy, RunningMean, rlalgo::support::BanditPulls,
                                       aggregation::SumThenNormalize>;
static_assert(sizeof(Trainer) > 0);
