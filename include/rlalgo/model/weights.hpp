// The tensors of a decoder, as plain structs. The trainer updates them in place and the engine reads the same memory.
//
// Linear weights are [out, in], as on disk. Undefined tensors = the architecture has none. A map whose weight is quantised has a tensor
// without memory in its place (quantised_weight.hpp: stand_in).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <c10/util/BFloat16.h>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

// A low-rank addition to a linear map (linear.hpp has the formula). Undefined `a` = none.
struct Lora {
  Tensor a;                 // [r, in]
  Tensor b;                 // [out, r]
  Tensor magnitude;         // [out], only with DoRA
  double scale = 1.0;       // α/r, or α/√r
  double dropout = 0.0;     // probability that an input is dropped while training
  std::uint32_t index = 0;  // its number in the model: names its random numbers

  [[nodiscard]] bool defined() const { return a.defined(); }
  [[nodiscard]] bool trained() const { return a.defined() && (a.requires_grad() || b.requires_grad()); }
};

struct Linear {
  Tensor weight;  // [out, in]
  Tensor bias;    // [out] or undefined
  Lora lora = {};
  std::shared_ptr<const QuantisedWeight> quantised = {};  // holds the weight, in 4 or 8 bits; null: `weight` does
};

// The maps of a gated MLP.
template <class Map>
struct GatedParts {
  Map gate_proj{}, up_proj{}, down_proj{};  // [I, H], [I, H], [H, I]
};

// The parts of a layer (layer_spec.hpp says which there are), whatever stands for a norm's weight and for a linear map.
template <class Norm, class Map>
struct LayerParts {
  Norm attention_norm{};                       // [H]
  Map q_proj{}, k_proj{}, v_proj{}, o_proj{};  // [n·d, H], [k·d, H], [k·d, H], [H, n·d]
  Norm q_norm{}, k_norm{};                     // [d]
  Norm sinks{};                                // [n]
  Norm attention_output_norm{};                // [H]
  Norm mlp_norm{};                             // [H]
  Map gate_proj{}, up_proj{}, down_proj{};     // [I, H], [I, H], [H, I]
  Norm mlp_output_norm{};                      // [H]
  // Of a layer with experts, instead of the three maps above.
  Map router{};                          // [E, H]
  std::vector<GatedParts<Map>> experts;  // [E]
  GatedParts<Map> shared{};              // of the expert of all tokens
  Map shared_gate{};                     // [1, H]
  Map all_gate_up{}, all_down{};         // no weights: an adapter of all experts (expert_adapter.hpp)

  // Of a layer with a gated delta rule (gated_delta.hpp), instead of q, k and v; o_proj is its out_proj.
  Map in_proj_qkv{}, in_proj_z{}, in_proj_b{}, in_proj_a{};  // [2K + V, H], [V, H], [hv, H], [hv, H]
  Map in_proj_qkvz{}, in_proj_ba{};                          // or [2K + 2V, H], [2hv, H]
  Norm conv{};                                               // [2K + V, 1, kernel]
  Norm a_log{}, dt_bias{};                                   // [hv]
  Norm delta_norm{};                                         // [dv]

  // What a fused layer has in the place of q, k and v, and of gate and up.
  Map qkv_proj{}, gate_up_proj{};  // [(n + 2k)·d, H], [2I, H]

  // f(map) for all maps of a layer that is not fused, but the small ones that choose and weigh: experts, and what a state keeps.
  template <class F>
  void each_map(F&& f) {
    for (Map* map : {&q_proj, &k_proj, &v_proj, &o_proj, &gate_proj, &up_proj, &down_proj, &in_proj_qkv, &in_proj_z,
                     &in_proj_qkvz})
      f(*map);
    const auto gated = [&](GatedParts<Map>& parts) {
      for (Map* map : {&parts.gate_proj, &parts.up_proj, &parts.down_proj}) f(*map);
    };
    for (GatedParts<Map>& expert : experts) gated(expert);
    gated(shared);
  }
};

using LayerWeights = LayerParts<Tensor, Linear>;

// DecoderConfig::embedding_scale as it multiplies embeddings of a dtype.
[[nodiscard]] inline double embedding_scale(const DecoderConfig& config, at::ScalarType type) {
  const auto scale = static_cast<float>(config.embedding_scale);
  return type == at::kBFloat16 && config.rounds_embedding_scale ? static_cast<float>(c10::BFloat16(scale)) : scale;
}

struct DecoderWeights {
  Tensor embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  Tensor final_norm;  // [H]
  Tensor lm_head;     // [V, H]; the same tensor as `embedding` when tied
  Lora lm_head_lora;  // added to lm_head alone, tied or not
};

}  // namespace rlalgo::model
