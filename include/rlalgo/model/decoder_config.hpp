// The shape of a decoder-only transformer (Llama, Qwen2, Qwen3), independent of how a file spells it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rlalgo::model {

// Rotary embedding: inv_i = theta^(−2i/D), optionally rescaled as Llama 3 does.
struct RopeConfig {
  enum class Kind { standard, llama3 };
  Kind kind = Kind::standard;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position_embeddings = 8192.0;
};

struct DecoderConfig {
  std::string model_type;  // "llama", "qwen2", "qwen3"
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
  RopeConfig rope;
};

}  // namespace rlalgo::model
