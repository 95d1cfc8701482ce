// Maps of a layer whose weights lie one behind the other in memory, as one: q, k and v are one product then, and so are gate and up.
//
// model/load.hpp puts them so on a device. Elsewhere, or where one of them was replaced, a layer's maps are multiplied one by one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

// All of them as one tensor [Σ rows, …] over the same memory; undefined where they do not lie so. Undefined ones are left out.
[[nodiscard]] inline tensor::Tensor one_behind_the_other(std::initializer_list<const tensor::Tensor*> parts) {
  const tensor::Tensor* first = nullptr;
  std::int64_t rows = 0, end = 0;
  for (const tensor::Tensor* const part : parts) {
    if (!part->defined()) continue;
    const bool goes_on =
        first == nullptr || (part->storage().is_alias_of(first->storage()) && part->storage_offset() == end &&
                             part->dim() == first->dim() && part->scalar_type() == first->scalar_type() &&
                             part->sizes().slice(1) == first->sizes().slice(1));
    if (!part->is_contiguous() || !goes_on) return {};
    if (first == nullptr) first = part;
    rows += part->size(0);
    end = part->storage_offset() + part->numel();
  }
  if (first == nullptr) return {};
  std::vector<std::int64_t> sizes(first->sizes().begin(), first->sizes().end());
  sizes[0] = rows;
  return first->detach().as_strided(sizes, first->strides(), first->storage_offset());
}

struct JoinedMaps {
  tensor::Tensor qkv, qkv_bias;  // [(n + 2 kv)·d, H], [(n + 2 kv)·d]
  tensor::Tensor gate_up;        // [2I, H]
};

[[nodiscard]] inline JoinedMaps joined_maps(const model::LayerWeights& w) {
  if (w.qkv_proj.weight.defined()) return {w.qkv_proj.weight, w.qkv_proj.bias, w.gate_up_proj.weight};
  return {one_behind_the_other({&w.q_proj.weight, &w.k_proj.weight, &w.v_proj.weight}),
          one_behind_the_other({&w.q_proj.bias, &w.k_proj.bias, &w.v_proj.bias}),
          w.gate_up_proj.weight.defined() ? w.gate_up_proj.weight
                                          : one_behind_the_other({&w.gate_proj.weight, &w.up_proj.weight})};
}

}  // namespace rlalgo::inference::detail
