// expect one error: nobody would use the method's Estimator or Aggregation: leave them out
#include <rlalgo/dpo.hpp>
#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own {
  using Loss = Dpo::Loss;
#ifndef RLALGO_VALID
  using Estimator = Grpo::Estimator;
#endif
};

auto run(const TrainConfig<Own>& config, const trainer::OfflineInputs& inputs) { return train<Own>(config, inputs); }
