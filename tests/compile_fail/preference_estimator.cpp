// expect: the rows of this sampler have no rewards
#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/trainer/offline.hpp>

using namespace rlalgo;
using Dpo = loss::DirectPreference<loss::Sigmoid>;

#ifdef RLALGO_VALID
using Estimator = advantage::None;
using Aggregation = aggregation::None;
#else
using Estimator = advantage::GroupRelative<>;  // pairs have no rewards to estimate from
using Aggregation = aggregation::SumThenNormalize;
#endif

using Trainer = trainer::Trainer<Dpo, Estimator, sampler::Pairs, Aggregation, sync::NoSync>;
static_assert(sizeof(Trainer) > 0);
