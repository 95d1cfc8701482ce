// The shape of a decoder-only transformer, independent of how a file spells it: its sizes, and of what its layers are made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/model/layer_spec.hpp>

namespace rlalgo::model {

// Rotary embedding: inv_i = theta^(−2i/D), rescaled for longer texts in one of several ways (rope.hpp).
struct RopeConfig {
  enum class Kind { standard, linear, dynamic, llama3, yarn, longrope };
  Kind kind = Kind::standard;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;                      // llama3
  double high_freq_factor = 4.0;                     // llama3
  double original_max_position_embeddings = 8192.0;  // llama3, yarn, longrope; dynamic: max_position_embeddings
  double beta_fast = 32.0, beta_slow = 1.0;          // yarn
  bool truncate = true;                              // yarn
  double attention_factor = 1.0;                     // cos and sin are multiplied by it (yarn, longrope)
  std::vector<double> short_factor,
      long_factor;           // longrope: [D/2], of sequences up to the original length, and longer ones
  std::int64_t width = 0;    // the first elements of a head that are rotated; 0 = all
  bool interleaved = false;  // elements 2i and 2i + 1 are a pair; else i and i + width/2 are

  [[nodiscard]] std::int64_t rotated(std::int64_t head_dim) const { return width > 0 ? width : head_dim; }

  bool operator==(const RopeConfig&) const = default;
};

struct DecoderConfig {
  std::string model_type{};  // of a family in detail/families.hpp: "llama", "qwen3", "gemma3_text", …
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  NormSpec norm{};                      // of all norms of the model
  double embedding_scale = 1.0;         // what the input embedding gives is multiplied by it …
  bool rounds_embedding_scale = false;  // … rounded to the embedding's dtype
  double logit_scale = 1.0;             // logits are multiplied by it
  double logit_cap = 0.0;               // c: a logit l becomes c·tanh(l/c); 0 = it stays
  bool tied_embeddings = false;
  std::int64_t padding_id = -1;  // what this token feeds in trains no row of the input embedding; −1 = none
  double router_aux_loss_coef =
      0.0;  // of models with experts: how much a method's loss asks for balance (router_load.hpp)
  bool output_router_logits = false;  // …, and whether those that do not ask by themselves are to ask, too
  // How names of tensors begin that files of the family may have besides, and that are not part of the model.
  std::vector<std::string> unread = {};
  std::vector<RopeConfig> ropes = {{}};  // the rotations that layers name
  std::vector<LayerSpec> specs = {{}};   // of each layer, or one for all

  // The longest sequence that a cache of keys serves: the rotation of longer ones is another one from the first token on.
  [[nodiscard]] std::int64_t context_length() const {
    std::int64_t out = max_position_embeddings;
    for (const RopeConfig& rope : ropes)
      if (rope.kind == RopeConfig::Kind::longrope)
        out = std::min(out, static_cast<std::int64_t>(rope.original_max_position_embeddings));
    return out;
  }
  // Which field of config.json says so.
  [[nodiscard]] std::string context_limit() const {
    const bool shorter = context_length() < max_position_embeddings;
    return (shorter ? "original_max_position_embeddings = " : "max_position_embeddings = ") +
           std::to_string(context_length());
  }
  // Layers that keep keys and values, of the first `end` layers: the others carry a state on (DeltaSpec).
  [[nodiscard]] std::int64_t attention_layers(std::int64_t end) const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < end; ++i) count += spec(i).delta.present() ? 0 : 1;
    return count;
  }
  [[nodiscard]] std::int64_t attention_layers() const { return attention_layers(layers); }
  // Numbers that a sequence carries on from token to token in the first `end` layers, in float32; 0 = it has keys and values alone.
  [[nodiscard]] std::int64_t carried(std::int64_t end) const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < end; ++i)
      if (spec(i).delta.present()) count += spec(i).delta.window_size() + spec(i).delta.state_size();
    return count;
  }
  [[nodiscard]] std::int64_t carried() const { return carried(layers); }
  [[nodiscard]] const LayerSpec& spec(std::int64_t layer) const {
    return specs[specs.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
  }
};

}  // namespace rlalgo::model
