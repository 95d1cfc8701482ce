// expect: the loss compares with a reference model
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;
using Pulls = rlalgo::support::BanditPulls;

#ifdef RLALGO_VALID
using Inputs = trainer::OnlineInputs<Pulls, sync::SharedWeights, std::shared_ptr<rlalgo::support::Bandit>>;
#else
using Inputs = trainer::OnlineInputs<Pulls>;  // no reference, and a penalty that compares with one
#endif

auto make(const GrpoConfig<loss::K3Kl>& config, Inputs inputs) { return make_grpo(config, std::move(inputs)); }
