// expect one error: the loss compares with a reference model
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;
using Pulls = rlalgo::support::BanditPulls;

#ifdef RLALGO_VALID
using Inputs = trainer::OnlineInputs<Pulls, sync::SharedWeights, std::shared_ptr<rlalgo::support::Bandit>>;
#else
using Inputs = trainer::OnlineInputs<Pulls>;  // no reference, and a penalty that compares with one
#endif

using GrpoWithKl = BasicGrpo<loss::K3Kl>;
auto run(const TrainConfig<GrpoWithKl>& config, Inputs inputs) { return train<GrpoWithKl>(config, inputs); }
