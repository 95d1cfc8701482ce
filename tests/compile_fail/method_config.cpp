// expect one error: the configuration is not this method's: pass a TrainConfig<Method>
#include <support/bandit.hpp>

#include <rlalgo/cispo.hpp>
#include <rlalgo/grpo.hpp>

using namespace rlalgo;

#ifdef RLALGO_VALID
using Config = TrainConfig<Grpo>;
#else
using Config = TrainConfig<Cispo>;  // the settings of another method
#endif

auto run(const Config& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Grpo>(config, inputs);
}
