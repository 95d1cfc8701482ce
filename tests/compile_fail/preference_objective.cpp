// expect: the first part is not a PairObjective
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>

using namespace rlalgo::loss;

#ifdef RLALGO_VALID
using Objective = Sigmoid;
#else
using Objective = GlobalTokenCount;  // an aggregation has no place here
#endif

constexpr RowKind rows = DirectPreference<Objective>::rows;
