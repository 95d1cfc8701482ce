// expect one error: a method with `parts` names what they are made of, its `Config`: is that missing or misspelt\?
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own {
  using Loss = Grpo::Loss;
  using Estimator = Grpo::Estimator;
  using Aggregation = Grpo::Aggregation;
#ifdef RLALGO_VALID
  using Config = Loss::Config;
#else
  using Confg = Loss::Config;
#endif
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Loss::Config& config) { return {Loss(config)}; }
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
