// What a layer of a decoder is made of: the one description that loading, the passes of training and of generation, adapters,
// saving and estimates of cost read. A family of models is a list of these (detail/families.hpp).
//
//   a = o_proj(attention(rope(head_norm(q_proj u)), rope(head_norm(k_proj u)), v_proj u)),   u = norm_attention(x)
//   m = x + norm_attention_output(a)
//   y = m + norm_mlp_output(down_proj(act(gate_proj w) · up_proj w)),   w = norm_mlp(m)
//
// A norm without a name is not there: u is x then, and so on. In a parallel layer w = u: attention and MLP read the same (Cohere).
// Where the layer has experts, they stand for the MLP; where it has a gated delta rule (gated_delta.hpp), that stands for attention,
// with o_proj behind it. With an output gate, q_proj gives of each head a query and, behind it, a gate g: what the head attended to is
// multiplied by σ(g) before o_proj (Qwen3.5).
#pragma once

#include <cstdint>
#include <string_view>

namespace rlalgo::model {

// silu(x) = x·σ(x);  gelu_tanh(x) = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))) (Hendrycks & Gimpel, arXiv 1606.08415, section 2).
enum class Activation { silu, gelu_tanh };

// Root-mean-square norm: x·r·w with r = (mean x² + epsilon)^(−½); with `unit_offset` x·r·(1 + w) (Gemma). x·r is rounded to the
// dtype of x before the product, unless the norm is `rounded_once`; with a unit offset it always is. `centred`: x − mean x stands
// for x, which is a layer norm without bias (Ba et al., arXiv 1607.06450, equation 4).
struct NormSpec {
  double epsilon = 1e-6;
  bool unit_offset = false;
  bool rounded_once = false;
  bool centred = false;

  [[nodiscard]] bool once() const { return unit_offset || rounded_once; }

  bool operator==(const NormSpec&) const = default;
};

// Names of a layer's norms in its files, below model.layers.N; "" = the layer has none there.
struct NormNames {
  std::string_view attention = "input_layernorm";
  std::string_view attention_output = "";
  std::string_view mlp = "post_attention_layernorm";
  std::string_view mlp_output = "";

  bool operator==(const NormNames&) const = default;
};

// How q and k are normalised before the rotation: not, each head by itself (weights [d]), or all heads together (weights [n·d], [k·d]).
enum class HeadNorm { none, each, all };
// An MLP of experts of which each token passes a few (experts.hpp has the formula).
struct ExpertSpec {
  std::int64_t count = 0;         // of experts; 0 = the layer has one MLP for all tokens
  std::int64_t chosen = 0;        // of a token
  std::int64_t width = 0;         // of an expert, where the one MLP has intermediate_size
  std::int64_t shared_width = 0;  // of the expert that every token passes besides; 0 = there is none
  bool normalised = false;        // the weights of a token's experts are divided by their sum
  bool bias = false;              // of router and experts
  double gate_limit = 0.0;        // L, of a clamped gate (experts.hpp); 0 = an expert is act(gate)·up
  double gate_slope = 1.0;        // α of it
  // Names in the files, below model.layers.N.
  std::string_view block = "mlp", router = "gate", gate_proj = "gate_proj", up_proj = "up_proj",
                   down_proj = "down_proj";
  // Files have one tensor for the maps of all experts: gate_up_proj [E, H, 2I], gate and up in turn, and down_proj [E, I, H].
  bool joined_files = false;

  bool operator==(const ExpertSpec&) const = default;
};

// Linear attention by the gated delta rule.
struct DeltaSpec {
  std::int64_t key_heads = 0,
               value_heads = 0;             // value head h reads key head h / (value_heads / key_heads); 0 = attention
  std::int64_t key_dim = 0, value_dim = 0;  // of a head
  std::int64_t kernel = 0;                  // tokens that the convolution sees
  bool grouped = false;  // in_proj_qkvz and in_proj_ba give q, k, v, z and b, a of a key head side by side

  [[nodiscard]] bool present() const { return value_heads > 0; }
  [[nodiscard]] std::int64_t keys() const { return key_heads * key_dim; }
  [[nodiscard]] std::int64_t values() const { return value_heads * value_dim; }
  [[nodiscard]] std::int64_t channels() const { return 2 * keys() + values(); }  // of the convolution: q, k, v
  // Numbers that a sequence carries on: the inputs of the convolution that it still sees, and the state.
  [[nodiscard]] std::int64_t window_size() const { return (kernel - 1) * channels(); }
  [[nodiscard]] std::int64_t state_size() const { return value_heads * key_dim * value_dim; }
  bool operator==(const DeltaSpec&) const = default;
};

struct LayerSpec {
  NormNames norms;
  HeadNorm head_norm = HeadNorm::none;
  bool fused_qkv = false;      // one map qkv_proj gives q, k and v side by side
  bool fused_gate_up = false;  // one map gate_up_proj gives gate and up side by side
  bool parallel = false;       // the MLP reads what the attention reads, and has no norm of its own
  bool sinks = false;          // every head has a score that no key stands for (sinks.hpp)
  bool qkv_bias = false;       // q_proj, k_proj, v_proj
  bool output_bias = false;    // o_proj
  bool mlp_bias = false;
  bool output_gate = false;  // q_proj gives a gate, too
  DeltaSpec delta = {};
  ExpertSpec experts = {};
  bool mlp_adapters = true;  // false where PEFT takes the names of the MLP's maps for those of all experts
  Activation activation = Activation::silu;
  double score_scale = 0.0;     // q·k is multiplied by it; 0 = 1/√D
  double score_cap = 0.0;       // c: a score s becomes c·tanh(s/c); 0 = it stays
  double residual_scale = 1.0;  // what a branch gives is multiplied by it before it is added
  std::int64_t window = 0;      // a token sees itself and window − 1 tokens before it; 0 = all before it
  int rope = 0;  // number of its rotation in DecoderConfig::ropes; no_rope = queries and keys are not rotated

  static constexpr int no_rope = -1;
  [[nodiscard]] bool rotary() const { return rope != no_rope; }
  bool operator==(const LayerSpec&) const = default;
};

}  // namespace rlalgo::model
