// Names, shapes and roles of a decoder's tensors, as Hugging Face checkpoints of Llama, Qwen2 and Qwen3 spell them.
//
// H hidden, I intermediate, n heads, k key/value heads, d head_dim, V vocabulary. Loading, saving, initialising,
// copying and listing parameters all walk this one list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::model {

enum class WeightRole { matrix, bias, norm };

// Calls visit(name, tensor, shape, role) for every tensor of the architecture; a tied lm_head is not visited. `Weights`
// is DecoderWeights or const DecoderWeights, its `layers` already of the right count.
template <class Weights, class Visit>
void visit_weights(const DecoderConfig& c, Weights& weights, Visit&& visit) {
  using Shape = std::vector<std::int64_t>;
  const std::int64_t queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  const auto linear = [&](const std::string& name, auto& part, std::int64_t out, std::int64_t in, bool bias) {
    visit(name + ".weight", part.weight, Shape{out, in}, WeightRole::matrix);
    if (bias) visit(name + ".bias", part.bias, Shape{out}, WeightRole::bias);
  };
  visit(std::string("model.embed_tokens.weight"), weights.embedding, Shape{c.vocab_size, c.hidden_size},
        WeightRole::matrix);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    visit(prefix + "input_layernorm.weight", layer.input_norm, Shape{c.hidden_size}, WeightRole::norm);
    linear(prefix + "self_attn.q_proj", layer.q_proj, queries, c.hidden_size, c.qkv_bias);
    linear(prefix + "self_attn.k_proj", layer.k_proj, keys, c.hidden_size, c.qkv_bias);
    linear(prefix + "self_attn.v_proj", layer.v_proj, keys, c.hidden_size, c.qkv_bias);
    linear(prefix + "self_attn.o_proj", layer.o_proj, c.hidden_size, queries, c.output_bias);
    if (c.qk_norm) {
      visit(prefix + "self_attn.q_norm.weight", layer.q_norm, Shape{c.head_dim}, WeightRole::norm);
      visit(prefix + "self_attn.k_norm.weight", layer.k_norm, Shape{c.head_dim}, WeightRole::norm);
    }
    visit(prefix + "post_attention_layernorm.weight", layer.post_attention_norm, Shape{c.hidden_size},
          WeightRole::norm);
    linear(prefix + "mlp.gate_proj", layer.gate_proj, c.intermediate_size, c.hidden_size, c.mlp_bias);
    linear(prefix + "mlp.up_proj", layer.up_proj, c.intermediate_size, c.hidden_size, c.mlp_bias);
    linear(prefix + "mlp.down_proj", layer.down_proj, c.hidden_size, c.intermediate_size, c.mlp_bias);
  }
  visit(std::string("model.norm.weight"), weights.final_norm, Shape{c.hidden_size}, WeightRole::norm);
  if (!c.tied_embeddings) {
    visit(std::string("lm_head.weight"), weights.lm_head, Shape{c.vocab_size, c.hidden_size}, WeightRole::matrix);
  }
}

// Calls visit(path, lora, weight) for every linear map that can carry an adapter, in the order of the file, lm_head
// last (tied or not).
template <class Weights, class Visit>
void visit_loras(Weights& weights, Visit&& visit) {
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string attention = "model.layers." + std::to_string(i) + ".self_attn.";
    const std::string mlp = "model.layers." + std::to_string(i) + ".mlp.";
    visit(attention + "q_proj", layer.q_proj.lora, layer.q_proj.weight);
    visit(attention + "k_proj", layer.k_proj.lora, layer.k_proj.weight);
    visit(attention + "v_proj", layer.v_proj.lora, layer.v_proj.weight);
    visit(attention + "o_proj", layer.o_proj.lora, layer.o_proj.weight);
    visit(mlp + "gate_proj", layer.gate_proj.lora, layer.gate_proj.weight);
    visit(mlp + "up_proj", layer.up_proj.lora, layer.up_proj.weight);
    visit(mlp + "down_proj", layer.down_proj.lora, layer.down_proj.weight);
  }
  visit(std::string("lm_head"), weights.lm_head_lora, weights.lm_head);
}

}  // namespace rlalgo::model
