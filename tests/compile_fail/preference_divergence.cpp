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

DpoConfig<Objective, JensenShannon> config;
auto make(OfflineInputs inputs) { return make_dpo(config, std::move(inputs)); }
