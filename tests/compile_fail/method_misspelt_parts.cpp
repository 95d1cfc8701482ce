// expect one error: says what that means, in `parts`: .*; is it missing or misspelt\?
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own {
  using Loss = Grpo::Loss;
  using Estimator = Grpo::Estimator;
  using Aggregation = Grpo::Aggregation;
  struct Config {
    double clip = 0.1;
  };
#ifdef RLALGO_VALID
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config&) { return {Loss({})}; }
#else
  static trainer::MethodParts<Loss, Estimator, Aggregation> part(const Config&) { return {Loss({})}; }
#endif
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
