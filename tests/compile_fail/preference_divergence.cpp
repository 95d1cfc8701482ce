// expect: this objective reads plain log-ratios
#include <rlalgo/dpo.hpp>

using namespace rlalgo;
using namespace rlalgo::loss;
using trainer::OfflineInputs;

#ifdef RLALGO_VALID
using Objective = Sigmoid;
#else
using Objective = ApoZero;
#endif

using Method = BasicDpo<Objective, JensenShannon>;
TrainConfig<Method> config;
auto run(OfflineInputs inputs) { return train<Method>(config, inputs); }
