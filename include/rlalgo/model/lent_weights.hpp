// Tensors to be written or sent that need not be in memory before their turn comes: weights that are sharded over several ranks
// (distributed/sharded_weights.hpp), or that are computed.
//
//   policy ── its gate is a WeightLender? ── yes: whole(weight) fetches the values of one weight
//                                         └─ no:  the weight itself
//
// Errors (usage): [rlalgo.model.46] a weight in 4 or 8 bits is wanted as a tensor, to be trained, saved or sent.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// A gate whose weights are not in memory between passes.
class WeightLender {
 public:
  WeightLender() = default;
  WeightLender(const WeightLender&) = delete;
  WeightLender& operator=(const WeightLender&) = delete;
  virtual ~WeightLender() = default;
  // What a weight holds: the weight itself where its memory is there, else a copy of the caller's.
  [[nodiscard]] virtual Tensor whole(const Tensor& weight) = 0;
};

[[nodiscard]] inline Tensor whole(const std::shared_ptr<LayerGate>& gate, const Tensor& weight) {
  const auto source = std::dynamic_pointer_cast<WeightLender>(gate);
  return source != nullptr ? source->whole(weight) : weight;
}
[[nodiscard]] inline Tensor whole(const Policy& policy, const Tensor& weight) { return whole(policy.gate(), weight); }

// A quantised weight has no tensor that could be trained, saved or sent.
[[noreturn]] inline void refuse_quantised(const std::string& name) {
  core::raise_usage("model", 46,
                    {.what = "a weight in 4 or 8 bits is frozen: it is neither trained nor saved",
                     .found = name,
                     .remedy = "train an adapter (adapter: qlora), merge it with merge-lora, or load the model whole"});
}

// Weights of `policy`, each fetched when it is made.
[[nodiscard]] inline PendingTensor pending(const Policy& policy, std::string name, const Tensor& weight) {
  if (is_stand_in(weight)) refuse_quantised(name);
  return {std::move(name), weight.scalar_type(), weight.sizes().vec(),
          [gate = policy.gate(), weight] { return whole(gate, weight).detach(); }};
}

// A list of them; of tensors that exist, too.
class PendingTensors : public std::vector<PendingTensor> {
 public:
  PendingTensors() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): what returns tensors serves where they are asked for one by one
  PendingTensors(const std::vector<NamedTensor>& tensors) {
    reserve(tensors.size());
    for (const auto& [name, value] : tensors)
      push_back({name, value.scalar_type(), value.sizes().vec(), [value = value] { return value; }});
  }
};

}  // namespace rlalgo::model
