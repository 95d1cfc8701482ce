#include "train_policy_gradient.hpp"

#include <rlalgo/config/policy_gradient.hpp>

namespace rlalgo::cli {

run::Outcome train_policy_gradient(const config::RunConfig& run, const trainer::OnlineConfig& settings,
                                   const config::EntropyCoefficient& coefficient, OnlineInputs inputs) {
  return config::with_policy_gradient(run, coefficient, [&](auto loss) {
    auto trainer = trainer::make_online(settings, std::move(loss), config::estimator(run),
                                        config::reward_aggregation(run), std::move(inputs));
    return trainer.run();
  });
}

}  // namespace rlalgo::cli
