// expect: constraints not satisfied
// expect: required for the satisfaction of .AdvantageEstimator<
#include <rlalgo/advantage/concept.hpp>

// An estimator keeps no state: its call must be const.
struct RunningMean {
  struct Config {};
#ifdef RLALGO_VALID
  rlalgo::advantage::Estimate operator()(std::span<const double>, const rlalgo::core::Groups&) const { return {}; }
#else
  rlalgo::advantage::Estimate operator()(std::span<const double>, const rlalgo::core::Groups&) { return {}; }
#endif
};

template <rlalgo::advantage::AdvantageEstimator A>
struct Trained {};

Trained<RunningMean> trained;
