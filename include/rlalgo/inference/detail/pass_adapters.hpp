// The adapters of a layer as products of a decoding pass: two launches for all maps that read the same.
//
//   u = x Aᵀ,  y += u Bᵀ        A [Σ r, in]: one map's rows behind the other's;  B [Σ out, Σ r]: s·B of each map in its own rows and
//                               columns, and 0 elsewhere
//
// They are copies in bfloat16, made with a view of the weights: the pass reads and writes bfloat16, and its products add in float32. DoRA,
// which scales what the base gives, is not of this form.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

struct LowRankMaps {
  tensor::Tensor a, b;  // undefined: no map has an adapter

  [[nodiscard]] bool defined() const { return a.defined(); }
  [[nodiscard]] std::int64_t rank() const { return a.defined() ? a.size(0) : 0; }
};

[[nodiscard]] inline LowRankMaps low_rank_maps(std::initializer_list<const model::Linear*> maps) {
  std::int64_t rank = 0, rows = 0;
  const model::Linear* adapted = nullptr;
  for (const model::Linear* const map : maps) {
    rows += map->weight.size(0);
    if (!map->lora.defined()) continue;
    adapted = map;
    rank += map->lora.a.size(0);
  }
  if (adapted == nullptr) return {};
  const c10::NoGradGuard no_grad;
  const auto options = adapted->lora.a.options().dtype(at::kBFloat16).requires_grad(false);
  LowRankMaps out{tensor::empty({rank, adapted->lora.a.size(1)}, options), tensor::zeros({rows, rank}, options)};
  std::int64_t row = 0, column = 0;
  for (const model::Linear* const map : maps) {
    const model::Lora& lora = map->lora;
    if (lora.defined()) {
      out.a.narrow(0, column, lora.a.size(0)).copy_(lora.a);
      out.b.narrow(0, row, map->weight.size(0)).narrow(1, column, lora.a.size(0)).copy_(lora.b.mul(lora.scale));
      column += lora.a.size(0);
    }
    row += map->weight.size(0);
  }
  return out;
}

struct LayerAdapters {
  LowRankMaps qkv, o, gate_up, down;

  [[nodiscard]] std::int64_t rank() const { return std::max({qkv.rank(), o.rank(), gate_up.rank(), down.rank()}); }
};

// Of a layer that decode_pass.hpp knows.
[[nodiscard]] inline LayerAdapters layer_adapters(const model::LayerWeights& w) {
  return {.qkv = w.qkv_proj.weight.defined() ? low_rank_maps({&w.qkv_proj})
                                             : low_rank_maps({&w.q_proj, &w.k_proj, &w.v_proj}),
          .o = low_rank_maps({&w.o_proj}),
          .gate_up = w.gate_up_proj.weight.defined() ? low_rank_maps({&w.gate_up_proj})
                                                     : low_rank_maps({&w.gate_proj, &w.up_proj}),
          .down = low_rank_maps({&w.down_proj})};
}

}  // namespace rlalgo::inference::detail
