// expect: the sync policy does not reach the weights of this generator
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>
#include <rlalgo/sync/no_sync.hpp>

using namespace rlalgo;

// A sampler that generates needs weights to arrive: NoSync reaches no generator.
#ifdef RLALGO_VALID
using Sync = sync::SharedWeights;
#else
using Sync = sync::NoSync;
#endif

using Trainer =
    trainer::OnlineTrainer<Grpo::Loss, Grpo::Estimator, rlalgo::support::BanditPulls, Grpo::Aggregation, Sync>;
static_assert(sizeof(Trainer) > 0);
