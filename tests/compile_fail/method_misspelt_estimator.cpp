// expect one error: needs `using Estimator = …;` .* is one missing, or misspelt\?
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own {
  using Loss = Grpo::Loss;
#ifdef RLALGO_VALID
  using Estimator = Grpo::Estimator;
#else
  using Estimater = Grpo::Estimator;
#endif
  using Aggregation = Grpo::Aggregation;
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
