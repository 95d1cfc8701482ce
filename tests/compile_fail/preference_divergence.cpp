// expect: this objective reads plain log-ratios
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/pointwise_objectives.hpp>

using namespace rlalgo::loss;

#ifdef RLALGO_VALID
using Objective = Sigmoid;
#else
using Objective = ApoZero;
#endif

constexpr Needs needs = DirectPreference<Objective, JensenShannon>::needs;
