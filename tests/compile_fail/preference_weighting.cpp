// expect: this objective couples the pairs of a batch
#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>

using namespace rlalgo::loss;

#ifdef RLALGO_VALID
using Objective = Sigmoid;
#else
using Objective = Aot;
#endif

constexpr Needs needs = DirectPreference<Objective, ReverseKl, PolicyWeighted>::needs;
