// expect one error: the method's `parts` does not take its settings
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

// Its settings are those of its loss, and `parts` takes others.
struct Own {
  using Loss = Grpo::Loss;
  using Estimator = Grpo::Estimator;
  using Aggregation = Grpo::Aggregation;
  using Config = Loss::Config;
#ifdef RLALGO_VALID
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Loss::Config& config) { return {Loss(config)}; }
#else
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(int) { return {Loss({})}; }
#endif
};

auto made(TrainConfig<Own> config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return trainer::make_trainer<Own>(std::move(config), std::move(inputs));
}
