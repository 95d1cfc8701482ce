// The shape of a decoder-only transformer (Llama, Mistral, Qwen2, Qwen3, SmolLM3), independent of how a file spells it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rlalgo::model {

// Rotary embedding: inv_i = theta^(−2i/D), rescaled for longer texts in one of several ways (rope.hpp).
struct RopeConfig {
  enum class Kind { standard, linear, dynamic, llama3, yarn };
  Kind kind = Kind::standard;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;                      // llama3
  double high_freq_factor = 4.0;                     // llama3
  double original_max_position_embeddings = 8192.0;  // llama3, yarn; dynamic: max_position_embeddings
  double beta_fast = 32.0, beta_slow = 1.0;          // yarn
  bool truncate = true;                              // yarn
  double attention_factor = 1.0;                     // cos and sin are multiplied by it (yarn)
};

// How a layer sees positions.
struct LayerKind {
  std::int64_t window = 0;  // a token sees itself and window − 1 tokens before it; 0 = all before it
  bool rotary = true;       // false: queries and keys are not rotated
};

struct DecoderConfig {
  std::string model_type;  // "llama", "mistral", "qwen2", "qwen3", "smollm3"
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool qkv_bias = false;     // q_proj, k_proj, v_proj
  bool output_bias = false;  // o_proj
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm per head before the rotation (Qwen3)
  bool tied_embeddings = false;
  std::int64_t padding_id = -1;  // what this token feeds in trains no row of the input embedding; −1 = none
  RopeConfig rope;
  std::vector<LayerKind> layer_kinds;  // [layers], or empty: all layers are LayerKind{}

  [[nodiscard]] LayerKind layer_kind(std::size_t layer) const {
    return layer < layer_kinds.size() ? layer_kinds[layer] : LayerKind{};
  }
};

}  // namespace rlalgo::model
