// The adapters of a layer as products of a decoding pass: two launches for all maps that read the same.
//
//   u = x Aᵀ,  y += u Bᵀ        A [Σ r, in]: one map's rows behind the other's;  B [Σ out, Σ r]: s·B of each map in its own rows and
//                               columns, and 0 elsewhere
//   DoRA:  y ← ν ⊙ y first,  and ν·s·B in the place of s·B;  ν = m / ‖W + s·B A‖ per output row, 1 of maps without it
//
// They are copies in bfloat16 (ν: float32), made with a view of the weights: the pass reads and writes bfloat16, and its products add in
// float32. Several adapters in one pass: adapter_bank.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

struct LowRankMaps {
  tensor::Tensor a, b;     // undefined: no map has an adapter
  tensor::Tensor scale;    // ν [Σ out], or of each place of a bank [places, Σ out]; undefined: no DoRA
  std::int64_t units = 0;  // of a bank, in which columns come one unit behind the other; 0: of one adapter

  [[nodiscard]] bool defined() const { return a.defined(); }
  [[nodiscard]] std::int64_t rank() const { return a.defined() ? a.size(0) : 0; }
};

using JoinedLinears = std::vector<const model::Linear*>;

// The maps of a layer that decode_pass.hpp knows: those that read the same, in the order in which their outputs stand.
[[nodiscard]] inline std::array<JoinedLinears, 4> maps_by_input(const model::LayerWeights& w) {
  const bool qkv = w.qkv_proj.weight.defined(), gate_up = w.gate_up_proj.weight.defined();
  return {qkv ? JoinedLinears{&w.qkv_proj} : JoinedLinears{&w.q_proj, &w.k_proj, &w.v_proj}, JoinedLinears{&w.o_proj},
          gate_up ? JoinedLinears{&w.gate_up_proj} : JoinedLinears{&w.gate_proj, &w.up_proj},
          JoinedLinears{&w.down_proj}};
}

[[nodiscard]] inline LowRankMaps low_rank_maps(const JoinedLinears& maps) {
  std::int64_t rank = 0, rows = 0;
  const model::Linear* adapted = nullptr;
  bool scaled = false;
  for (const model::Linear* const map : maps) {
    rows += map->weight.size(0);
    if (!map->lora.defined()) continue;
    adapted = map;
    rank += map->lora.a.size(0);
    scaled = scaled || map->lora.magnitude.defined();
  }
  if (adapted == nullptr) return {};
  const c10::NoGradGuard no_grad;
  const auto options = adapted->lora.a.options().dtype(at::kBFloat16).requires_grad(false);
  LowRankMaps out{tensor::empty({rank, adapted->lora.a.size(1)}, options), tensor::zeros({rows, rank}, options), {}};
  if (scaled) out.scale = tensor::ones({rows}, options.dtype(at::kFloat));
  std::int64_t row = 0, column = 0;
  for (const model::Linear* const map : maps) {
    const model::Lora& lora = map->lora;
    const std::int64_t count = map->weight.size(0);
    if (lora.defined()) {
      tensor::Tensor b = lora.b.mul(lora.scale);
      if (lora.magnitude.defined()) {
        const tensor::Tensor ratio = lora.magnitude.div(model::adapted_norm(*map, lora));
        out.scale.narrow(0, row, count).copy_(ratio);
        b.mul_(ratio.unsqueeze(1));
      }
      out.a.narrow(0, column, lora.a.size(0)).copy_(lora.a);
      out.b.narrow(0, row, count).narrow(1, column, lora.a.size(0)).copy_(b);
      column += lora.a.size(0);
    }
    row += count;
  }
  return out;
}

struct LayerAdapters {
  LowRankMaps qkv, o, gate_up, down;

  // In the order of maps_by_input().
  [[nodiscard]] std::array<LowRankMaps*, 4> all() { return {&qkv, &o, &gate_up, &down}; }
  [[nodiscard]] std::array<const LowRankMaps*, 4> all() const { return {&qkv, &o, &gate_up, &down}; }
  [[nodiscard]] std::int64_t rank() const { return std::max({qkv.rank(), o.rank(), gate_up.rank(), down.rank()}); }
  // Columns of the widest ν.
  [[nodiscard]] std::int64_t scaled() const {
    std::int64_t out = 0;
    for (const LowRankMaps* const one : all())
      if (one->scale.defined()) out = std::max(out, one->scale.size(-1));
    return out;
  }
};

[[nodiscard]] inline LayerAdapters layer_adapters(const model::LayerWeights& w) {
  const std::array<JoinedLinears, 4> maps = maps_by_input(w);
  return {low_rank_maps(maps[0]), low_rank_maps(maps[1]), low_rank_maps(maps[2]), low_rank_maps(maps[3])};
}

}  // namespace rlalgo::inference::detail
