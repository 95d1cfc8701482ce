// A decoder's weights with its adapter multiplied in: copies of the maps that the adapter changes, everything else shared. A pass that
// reads them knows no adapter, so an engine on a device decodes with as few launches as without one.
//
//   W' = W + s·B A,   with DoRA each row times m / ‖W + s·B A‖      in the adapter's float32, rounded to the dtype of W
//
// Maps that are multiplied as one (q, k, v; gate, up) lie one behind the other, as model/load.hpp puts them: where one of them has an adapter,
// all are copied. update() writes into the memory that is there, so what has recorded its addresses reads the new values. Left as they are,
// with their adapters: maps in 4 or 8 bits, adapters of all experts of a layer, and that of lm_head.
//
// In float32 the logits are those of the adapter's own products to rounding. In bfloat16 W' is rounded once: what an adapter adds to a
// weight and is less than half of its last bit is lost, as it is where an adapter is merged for vLLM.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/merged_weights.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference {

namespace detail {

[[nodiscard]] inline bool may_merge(const model::Linear& map) { return map.lora.defined() && !map.quantised; }

// see(maps) for every list of maps of the layer that are to be copied together; of `Layer` LayerWeights or const LayerWeights.
template <class Layer, class See>
void visit_merged(Layer& w, See&& see) {
  using Map = std::conditional_t<std::is_const_v<Layer>, const model::Linear, model::Linear>;
  using Maps = std::vector<Map*>;
  const auto visit = [&](const Maps& maps) {
    bool any = false, together = true;
    for (const model::Linear* const map : maps) {
      any = any || may_merge(*map);
      together = together && map->weight.defined() && !map->quantised &&
                 map->weight.scalar_type() == maps.front()->weight.scalar_type();
    }
    if (!any) return;
    if (together) return see(maps);
    for (Map* const map : maps)
      if (may_merge(*map)) see(Maps{map});
  };
  visit({&w.q_proj, &w.k_proj, &w.v_proj});
  visit({&w.gate_proj, &w.up_proj});
  for (Map* const map : {&w.qkv_proj, &w.gate_up_proj, &w.o_proj, &w.down_proj, &w.shared.gate_proj, &w.shared.up_proj,
                         &w.shared.down_proj, &w.shared_gate, &w.in_proj_qkv, &w.in_proj_z, &w.in_proj_b, &w.in_proj_a,
                         &w.in_proj_qkvz, &w.in_proj_ba})
    visit({map});
}

}  // namespace detail

// What copies of the maps take; 0: there is nothing to merge.
[[nodiscard]] inline std::size_t merged_adapter_bytes(const model::DecoderWeights& weights) {
  std::size_t out = 0;
  for (const model::LayerWeights& layer : weights.layers)
    detail::visit_merged(layer, [&](const auto& maps) {
      for (const model::Linear* const map : maps) out += map->weight.nbytes();
    });
  return out;
}

class MergedAdapter {
 public:
  // Takes the weights as they are now; the same decoder's at every call.
  void update(const model::DecoderWeights& from) {
    const c10::NoGradGuard no_grad;
    weights_ = from;
    std::size_t next = 0;
    for (model::LayerWeights& layer : weights_.layers)
      detail::visit_merged(layer, [&](const std::vector<model::Linear*>& maps) { replace(maps, next++); });
  }

  [[nodiscard]] const model::DecoderWeights& weights() const { return weights_; }

 private:
  void replace(const std::vector<model::Linear*>& maps, std::size_t which) {
    if (which == copies_.size()) {
      std::int64_t rows = 0;
      for (const model::Linear* const map : maps) rows += map->weight.size(0);
      copies_.push_back(
          tensor::empty({rows, maps.front()->weight.size(1)}, maps.front()->weight.options().requires_grad(false)));
    }
    std::int64_t row = 0;
    for (model::Linear* const map : maps) {
      const tensor::Tensor part = copies_[which].narrow(0, row, map->weight.size(0));
      part.copy_(map->lora.defined() ? model::merged(map->weight, map->lora) : map->weight);
      row += part.size(0);
      map->weight = part;
      map->lora = {};
    }
  }

  model::DecoderWeights weights_;
  std::vector<tensor::Tensor> copies_;  // [Σ rows, in], in the order of visit_merged()
};

}  // namespace rlalgo::inference
