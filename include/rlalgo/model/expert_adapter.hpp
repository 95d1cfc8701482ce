// An adapter on the maps of all experts of a layer at once, as PEFT puts it on a parameter of three dimensions.
//
//   W_e' = W_e + s·B_e A_e:   A [E·r, in], of which rows e·r … e·r + r are A_e;   B [out, r·E], of which the columns e, E + e, 2E + e, …
//   are B_e. gate and up are one map, gate_up_proj [2I, H] (one A_e for both); gpt-oss has a row of each in turn.
//
// Source: PEFT 0.21, ParamWrapper (tuners/lora/layer.py): `target_parameters`; Hu et al., arXiv 2106.09685, eq. 3. There is no
// dropout and no magnitude. Gradients of an expert's part are added to that of the whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rlalgo/model/detail/expert_maps.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

// B_e [rows, r] of B, in its memory.
[[nodiscard]] inline Tensor expert_b(const Tensor& b, std::int64_t expert, std::int64_t count, const ExpertRows& rows) {
  return rows_of(b.view({b.size(0), b.size(1) / count, count}).select(2, expert), rows);
}

}  // namespace detail

// Of one map of one expert of `count`. Without gradient mode.
[[nodiscard]] inline Lora expert_lora(const Lora& all, std::int64_t expert, std::int64_t count,
                                      const detail::ExpertRows& rows) {
  if (!all.defined()) return {};
  const std::int64_t r = all.a.size(0) / count;
  Lora out;
  out.scale = all.scale;
  out.a = all.a.detach().narrow(0, expert * r, r);
  out.b = detail::expert_b(all.b.detach(), expert, count, rows).clone(at::MemoryFormat::Contiguous);
  if (const Tensor gradient = gradient_buffer(all.a); gradient.defined())
    out.a.requires_grad_(true).mutable_grad() = gradient.narrow(0, expert * r, r);
  if (const Tensor gradient = gradient_buffer(all.b); gradient.defined())
    out.b.requires_grad_(true).mutable_grad() = detail::expert_b(gradient, expert, count, rows);
  return out;
}

// The maps of a layer's experts with what an adapter of all of them adds.
class AdaptedExperts {
 public:
  AdaptedExperts(const ExpertSpec& spec, const LayerWeights& w)
      : w_(w), maps_(detail::expert_maps(spec, w.experts.empty() ? 0 : w.experts.front().down_proj.weight.size(0))) {}

  [[nodiscard]] Linear gate(std::size_t i) const { return with(w_.experts[i].gate_proj, w_.all_gate_up.lora, i, 0); }
  [[nodiscard]] Linear up(std::size_t i) const { return with(w_.experts[i].up_proj, w_.all_gate_up.lora, i, 1); }
  [[nodiscard]] Linear down(std::size_t i) const { return with(w_.experts[i].down_proj, w_.all_down.lora, i, 2); }

 private:
  [[nodiscard]] Linear with(Linear map, const Lora& all, std::size_t i, std::size_t which) const {
    if (all.defined())
      map.lora = expert_lora(all, static_cast<std::int64_t>(i), static_cast<std::int64_t>(w_.experts.size()),
                             maps_[which].rows);
    return map;
  }

  const LayerWeights& w_;
  std::array<detail::ExpertMap, 3> maps_;
};

}  // namespace rlalgo::model
