// The tensors of a decoder, as plain structs. The trainer updates them in place and the engine reads the same memory.
//
// Linear weights are [out, in], as on disk. Undefined tensors = the architecture has none.
#pragma once

#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

struct Linear {
  Tensor weight;  // [out, in]
  Tensor bias;    // [out] or undefined
};

struct LayerWeights {
  Tensor input_norm;                      // [H]
  Linear q_proj, k_proj, v_proj, o_proj;  // [n·d, H], [k·d, H], [k·d, H], [H, n·d]
  Tensor q_norm, k_norm;                  // [d] or undefined
  Tensor post_attention_norm;             // [H]
  Linear gate_proj, up_proj, down_proj;   // [I, H], [I, H], [H, I]
};

struct DecoderWeights {
  Tensor embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  Tensor final_norm;  // [H]
  Tensor lm_head;     // [V, H]; the same tensor as `embedding` when tied
};

}  // namespace rlalgo::model
