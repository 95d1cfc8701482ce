// expect: the loss reads rows of another kind than the sampler gives
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/sampler/preferences.hpp>
#include <rlalgo/trainer/offline.hpp>

using namespace rlalgo;
using Dpo = loss::DirectPreference<loss::Sigmoid>;

#ifdef RLALGO_VALID
using Sampler = sampler::Pairs;
#else
using Sampler = sampler::UnpairedAnswers;  // a pairwise loss over unpaired data
#endif

using Trainer = trainer::Trainer<Dpo, advantage::None, Sampler, aggregation::None, sync::NoSync>;
static_assert(sizeof(Trainer) > 0);
