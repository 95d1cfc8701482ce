// Puts the weights of maps that read the same one behind the other, so that a device may multiply them as one: q, k and v; gate and up.
#pragma once

#include <cstdint>
#include <vector>

#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

// Each becomes a tensor of its own over memory that all share, with the numbers that it had. Not where one is missing, or quantised, or
// of another shape but for its rows.
inline void lie_together(const std::vector<Tensor*>& parts) {
  std::vector<Tensor> values;
  for (const Tensor* const part : parts) {
    if (!part->defined() || part->dim() == 0 || part->dim() != parts.front()->dim() ||
        part->sizes().slice(1) != parts.front()->sizes().slice(1))
      return;
    values.push_back(part->detach());
  }
  const Tensor all = tensor::concatenate(values, 0);
  std::int64_t offset = all.storage_offset();
  for (Tensor* const part : parts) {
    // Not a view, whose version would be that of all of them.
    Tensor own = tensor::empty({0}, all.options());
    own.set_(all.storage(), offset, part->sizes(), part->strides());
    offset += part->numel();
    own.requires_grad_(part->requires_grad());
    *part = own;
  }
}

inline void lie_together(LayerWeights& w) {
  lie_together({&w.q_proj.bias, &w.k_proj.bias, &w.v_proj.bias});
  for (const Linear* const map : {&w.q_proj, &w.k_proj, &w.v_proj, &w.gate_proj, &w.up_proj})
    if (map->quantised) return;
  lie_together({&w.q_proj.weight, &w.k_proj.weight, &w.v_proj.weight});
  lie_together({&w.gate_proj.weight, &w.up_proj.weight});
}

}  // namespace rlalgo::model::detail
