// expect one error: `using Aggregation = …;` for it .* is one missing, or misspelt\?
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own {
  using Loss = Grpo::Loss;
  using Estimator = Grpo::Estimator;
#ifdef RLALGO_VALID
  using Aggregation = Grpo::Aggregation;
#else
  using Agregation = Grpo::Aggregation;
#endif
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
