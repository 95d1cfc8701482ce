// expect one error: A method that learns from answers takes trainer::OfflineInputs
#include <support/bandit.hpp>

#include <rlalgo/dpo.hpp>
#include <rlalgo/grpo.hpp>

using namespace rlalgo;

#ifdef RLALGO_VALID
using Method = Grpo;
#else
using Method = Dpo;  // learns from pairs of answers, and generates nothing
#endif

auto run(const TrainConfig<Method>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Method>(config, inputs);
}
