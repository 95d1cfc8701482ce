// The weights that an adapter changes, as they are with it: for those who run the model without adapters.
//
//   W + s·B A;   with DoRA each row times magnitude / ‖W + s·B A‖
//
// Names are those of the base model's files. Each is made when it is asked for: computed in the adapter's dtype and given in
// that of the base, a quantised one as it is computed with; modules that the adapter replaces (modules_to_save, embeddings of its own) are given as they are, not copied. The decoder must
// outlive the list.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <c10/core/GradMode.h>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/detail/expert_maps.hpp>
#include <rlalgo/model/expert_adapter.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

// A map's numbers with its adapter, in the adapter's dtype.
[[nodiscard]] inline Tensor merged(const Tensor& base, const Lora& lora) {
  Tensor out = tensor::addmm(base.to(lora.a.scalar_type()), lora.b, lora.a, 1.0, lora.scale);
  if (lora.magnitude.defined()) out.mul_(lora.magnitude.div(tensor::euclidean_norm(out, 1)).unsqueeze(1));
  return out;
}

namespace detail {

using Bits = std::shared_ptr<const QuantisedWeight>;

// The numbers of a weight, quantised or not.
[[nodiscard]] inline Tensor numbers_of(const std::shared_ptr<LayerGate>& gate, const Tensor& weight, const Bits& bits) {
  return bits ? bits->dense(weight.scalar_type()) : whole(gate, weight);
}

// The maps of every expert of a layer that `lora`, at `path`, is an adapter of.
inline void add_merged_experts(const Decoder& decoder, const std::string& path, const Lora& lora, std::size_t layer,
                               PendingTensors& out) {
  const ExpertSpec& e = decoder.config().spec(static_cast<std::int64_t>(layer)).experts;
  const auto& experts = decoder.weights().layers[layer].experts;
  const std::string prefix = layer_prefix(layer) + std::string(e.block) + ".experts.";
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const Linear* const linears[] = {&experts[i].gate_proj, &experts[i].up_proj, &experts[i].down_proj};
    std::size_t which = 0;
    for (const ExpertMap& map : expert_maps(e, decoder.config().hidden_size)) {
      const Tensor weight = linears[which]->weight;
      const Bits bits = linears[which++]->quantised;
      if (!path.ends_with("." + std::string(map.joined))) continue;
      out.push_back({prefix + std::to_string(i) + "." + std::string(map.name) + ".weight", weight.scalar_type(),
                     weight.sizes().vec(),
                     [gate = decoder.gate(), lora, weight, bits, i, count = e.count, rows = map.rows] {
                       const c10::NoGradGuard no_grad;
                       Lora there = lora;
                       for (Tensor* one : {&there.a, &there.b}) *one = whole(gate, *one).detach();
                       there = expert_lora(there, static_cast<std::int64_t>(i), count, rows);
                       const Tensor base = numbers_of(gate, weight, bits);
                       return merged(base, there).to(base.scalar_type());
                     }});
    }
  }
}

}  // namespace detail

[[nodiscard]] inline PendingTensors merged_weights(const Decoder& decoder) {
  PendingTensors out;
  if (decoder.adapter() == nullptr) return out;
  decoder.visit_adapter([&](const std::string& name, const Tensor& value) {
    if (name.find(".lora_") == std::string::npos && !name.ends_with(".base_layer.weight"))
      out.push_back(pending(decoder, name, value));
  });
  std::map<std::string, detail::Bits> maps;
  visit_maps(decoder.config(), decoder.weights(), [&](const std::string& path, const Linear& map, auto, bool) {
    if (map.quantised) maps[path] = map.quantised;
  });
  visit_loras(
      decoder.config(), decoder.weights(),
      [&](const std::string& path, const Lora& lora, const Tensor& weight) {
        if (!lora.defined()) return;
        const auto found = maps.find(path);
        const detail::Bits bits = found == maps.end() ? nullptr : found->second;
        out.push_back(
            {path + ".weight", weight.scalar_type(), weight.sizes().vec(), [gate = decoder.gate(), lora, weight, bits] {
               const c10::NoGradGuard no_grad;
               const Tensor base = detail::numbers_of(gate, weight, bits);
               Lora there = lora;
               for (Tensor* one : {&there.a, &there.b, &there.magnitude})
                 if (one->defined()) *one = whole(gate, *one);
               return merged(base, there).to(base.scalar_type());
             }});
      },
      [&](const std::string& path, const Lora& lora, std::size_t layer) {
        if (lora.defined()) detail::add_merged_experts(decoder, path, lora, layer, out);
      });
  return out;
}

}  // namespace rlalgo::model
