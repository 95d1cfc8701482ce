// expect: this objective couples the pairs of a batch
#include <rlalgo/dpo.hpp>

using namespace rlalgo;
using namespace rlalgo::loss;
using trainer::OfflineInputs;

#ifdef RLALGO_VALID
using Objective = Sigmoid;
#else
using Objective = Aot;
#endif

using Method = BasicDpo<Objective, ReverseKl, PolicyWeighted>;
TrainConfig<Method> config;
auto run(OfflineInputs inputs) { return train<Method>(config, inputs); }
