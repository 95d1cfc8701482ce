// expect: the sync policy does not reach the weights of this generator
#include <rlalgo/grpo.hpp>
#include <rlalgo/remote/vllm_client.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>

using namespace rlalgo;

// With the default policy the server would never get weights, and the run would learn from the base model for ever.
#ifdef RLALGO_VALID
using Sync = sync::HttpWeightSync;
#else
using Sync = sync::SharedWeights;
#endif

auto run(const TrainConfig<Grpo>& config, trainer::OnlineInputs<remote::VllmClient, Sync> inputs) {
  return train<Grpo>(config, inputs);
}
