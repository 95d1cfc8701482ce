// expect: this objective compares with a reference
#include <rlalgo/loss/contrastive.hpp>
#include <rlalgo/loss/pointwise_objectives.hpp>

using namespace rlalgo::loss;

#ifdef RLALGO_VALID
using Objective = MarginSigmoid;
#else
using Objective = BcoPair;
#endif

constexpr Needs needs = Contrastive<Objective, SummedLogProb>::needs;
