// expect: the sync policy does not reach the weights of this generator
#include <rlalgo/grpo.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/sync/any_sync.hpp>

using namespace rlalgo;

// Whose weights an AnyGenerator draws from is known to the run only, and SharedWeights would not ask.
#ifdef RLALGO_VALID
using Sync = sync::AnySync;
#else
using Sync = sync::SharedWeights;
#endif

using Trainer = trainer::OnlineTrainer<Grpo::Loss, Grpo::Estimator, inference::AnyGenerator, Grpo::Aggregation, Sync>;
static_assert(sizeof(Trainer) > 0);
