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

DpoConfig<Objective, ReverseKl, PolicyWeighted> config;
auto make(OfflineInputs inputs) { return make_dpo(config, std::move(inputs)); }
