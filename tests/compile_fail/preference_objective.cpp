// expect: the first part is not a PairObjective
#include <rlalgo/dpo.hpp>
#include <rlalgo/loss/global_token_count.hpp>

using namespace rlalgo;
using namespace rlalgo::loss;
using trainer::OfflineInputs;

#ifdef RLALGO_VALID
using Objective = Sigmoid;
#else
using Objective = GlobalTokenCount;  // an aggregation has no place here
#endif

using Method = BasicDpo<Objective>;
auto run(TrainConfig<Method> config, OfflineInputs inputs) { return train<Method>(config, inputs); }
