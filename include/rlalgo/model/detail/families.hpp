// The families of models that config.json may name, each as a description: which fields of it are read, what stands for those
// that it leaves out (the defaults of transformers' configuration class), and of what its layers are made.
//
// A family that needs nothing new is a function here and a row of `families`; everything else follows from the DecoderConfig
// that it makes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/config_fields.hpp>
#include <rlalgo/model/detail/expert_fields.hpp>
#include <rlalgo/model/detail/family_fields.hpp>

namespace rlalgo::model::detail {

// Llama 2 and 3, TinyLlama, SmolLM2.
inline void describe_llama(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.max_positions = 2048}, c);
  const bool attention = fields.boolean("attention_bias").value_or(false);
  const bool mlp = fields.boolean("mlp_bias").value_or(false);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.qkv_bias = spec.output_bias = attention;
    spec.mlp_bias = mlp;
  });
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
  read_windows(fields, 0, false, no_layer_slides, c);
}

// All layers have a window, unless it is null; layer_types is not read.
inline void describe_mistral(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 8, .max_positions = 131072}, c);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
  const std::int64_t window = fields.has_null("sliding_window") ? 0 : fields.positive("sliding_window", 4096);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) { spec.window = window; });
}

inline void read_qwen_windows(const JsonFields& fields, DecoderConfig& c) {
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
  const std::int64_t window = slides_at_all(fields) ? fields.positive("sliding_window", 4096) : 0;
  const std::int64_t first = fields.integer("max_window_layers").value_or(28);
  read_windows(
      fields, window, true, [&](const LayerSpec&, std::int64_t layer) { return layer >= first; }, c);
}

inline void describe_qwen2(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {}, c);
  each_spec(c, [](LayerSpec& spec, std::int64_t) { spec.qkv_bias = true; });
  read_qwen_windows(fields, c);
}

// Dense.
inline void describe_qwen3(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.head_dim = 128}, c);
  const bool bias = fields.boolean("attention_bias").value_or(false);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.qkv_bias = spec.output_bias = bias;
    spec.head_norm = HeadNorm::each;
  });
  read_qwen_windows(fields, c);
}

// Some layers rotate nothing; those are the ones that may slide.
inline void describe_smollm3(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 4, .tied = true, .padding = 128004}, c);
  const bool attention = fields.boolean("attention_bias").value_or(false);
  const bool mlp = fields.boolean("mlp_bias").value_or(false);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 2000000.0)};
  const std::vector<std::int64_t> rotary = fields.integers("no_rope_layers");
  const std::int64_t interval = fields.positive("no_rope_layer_interval", 4);
  if (!rotary.empty() && rotary.size() < c.specs.size())
    fields.wrong("no_rope_layers", *fields.find("no_rope_layers"), "one number per layer");
  each_spec(c, [&](LayerSpec& spec, std::int64_t layer) {
    spec.qkv_bias = spec.output_bias = attention;
    spec.mlp_bias = mlp;
    const bool rotates = rotary.empty() ? (layer + 1) % interval != 0 : rotary[static_cast<std::size_t>(layer)] != 0;
    if (!rotates) spec.rope = LayerSpec::no_rope;
  });
  const std::int64_t window = slides_at_all(fields) ? fields.integer("sliding_window").value_or(0) : 0;
  read_windows(
      fields, std::max<std::int64_t>(window, 0), true,
      [](const LayerSpec& spec, std::int64_t) { return !spec.rotary(); }, c);
}

// Of Gemma 2 and 3: norms with a unit offset around both branches, a gate of gelu, scaled embeddings, scores scaled by
// query_pre_attn_scalar^(−½).
inline void read_gemma(const JsonFields& fields, std::int64_t max_positions, DecoderConfig& c) {
  read_shape(fields,
             {.kv_heads = 4,
              .head_dim = 256,
              .max_positions = max_positions,
              .tied = true,
              .padding = 0,
              .activation_key = "hidden_activation",
              .activation = "gelu_pytorch_tanh"},
             c);
  c.norm.unit_offset = true;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.rounds_embedding_scale = true;
  const bool bias = fields.boolean("attention_bias").value_or(false);
  const std::int64_t scalar = fields.positive("query_pre_attn_scalar", 256);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.norms = {.attention = "input_layernorm",
                  .attention_output = "post_attention_layernorm",
                  .mlp = "pre_feedforward_layernorm",
                  .mlp_output = "post_feedforward_layernorm"};
    spec.qkv_bias = spec.output_bias = bias;
    if (scalar != c.head_dim) spec.score_scale = 1.0 / std::sqrt(static_cast<double>(scalar));
  });
  if (fields.boolean("use_bidirectional_attention").value_or(false))
    fields.unsupported("use_bidirectional_attention", Json(true), "false: a token sees what is before it");
}

// 0 where config.json says null.
[[nodiscard]] inline double read_cap(const JsonFields& fields, std::string_view key, double fallback) {
  const double cap = fields.has_null(key) ? 0.0 : fields.number(key).value_or(fallback);
  if (cap < 0 || (cap == 0 && fields.find(key) != nullptr)) fields.wrong(key, Json(cap), "a positive number, or null");
  return cap;
}

// Gemma 2 (arXiv 2408.00118): every other layer slides; scores and logits are capped.
inline void describe_gemma2(const JsonFields& fields, DecoderConfig& c) {
  read_gemma(fields, 8192, c);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
  const std::int64_t window = fields.positive("sliding_window", 4096);
  read_windows(
      fields, window, true, [](const LayerSpec&, std::int64_t layer) { return layer % 2 == 0; }, c);
  const double cap = read_cap(fields, "attn_logit_softcapping", 50.0);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) { spec.score_cap = cap; });
  c.logit_cap = read_cap(fields, "final_logit_softcapping", 30.0);
}

// Gemma 3, text (arXiv 2503.19786): heads of q and k are normalised; five layers of six slide and have a rotation of their own.
inline void describe_gemma3(const JsonFields& fields, DecoderConfig& c) {
  read_gemma(fields, 131072, c);
  c.ropes = parse_ropes_of_kinds(
      fields, c.max_position_embeddings,
      {{"full_attention", "rope_theta", 1000000.0}, {"sliding_attention", "rope_local_base_freq", 10000.0}});
  const std::int64_t pattern = fields.positive("sliding_window_pattern", 6);
  const std::int64_t window = fields.positive("sliding_window", 4096);
  read_windows(
      fields, window, true, [&](const LayerSpec&, std::int64_t layer) { return (layer + 1) % pattern != 0; }, c);
  each_spec(c, [](LayerSpec& spec, std::int64_t) {
    spec.head_norm = HeadNorm::each;
    spec.rope = spec.window > 0 ? 1 : 0;
  });
  c.logit_cap = read_cap(fields, "final_logit_softcapping", 0.0);
}

// Norms behind both branches and none before them; q and k are normalised with all their heads at once.
inline void describe_olmo2(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.max_positions = 2048, .padding = 1, .epsilon = 1e-5}, c);
  c.norm.rounded_once = true;
  const bool bias = fields.boolean("attention_bias").value_or(false);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.norms = {.attention = "",
                  .attention_output = "post_attention_layernorm",
                  .mlp = "",
                  .mlp_output = "post_feedforward_layernorm"};
    spec.head_norm = HeadNorm::all;
    spec.qkv_bias = spec.output_bias = bias;
  });
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
}

// Phi-3, Phi-3.5, Phi-4 (mini): fused projections; a part of each head may be rotated; longrope.
inline void describe_phi3(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.max_positions = 4096, .padding = 32000, .epsilon = 1e-5}, c);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0,
                        {.head_dim = c.head_dim, .longrope = true, .original_length = 4096})};
  const std::int64_t window = fields.find("sliding_window") == nullptr ? 0 : fields.positive("sliding_window");
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.fused_qkv = spec.fused_gate_up = true;
    spec.window = window;
  });
  for (const char* key : {"resid_pdrop", "embd_pdrop"})
    if (const auto dropout = fields.number(key); dropout && *dropout != 0)
      fields.unsupported(key, Json(*dropout), "0, as only adapters have dropout here");
}

// GLM-4 (0414): norms around both branches, half of each head rotated in interleaved pairs, gate and up fused.
inline void describe_glm4(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 2, .head_dim = 128, .max_positions = 131072, .padding = 151329, .epsilon = 1.5625e-7},
             c);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0,
                        {.head_dim = c.head_dim, .partial = 0.5, .interleaved = true})};
  const bool bias = fields.boolean("attention_bias").value_or(true);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.norms = {.attention = "input_layernorm",
                  .attention_output = "post_self_attn_layernorm",
                  .mlp = "post_attention_layernorm",
                  .mlp_output = "post_mlp_layernorm"};
    spec.qkv_bias = bias;
    spec.fused_gate_up = true;
  });
}

// Granite 3: Llama with four multipliers.
inline void describe_granite(const JsonFields& fields, DecoderConfig& c) {
  describe_llama(fields, c);
  const auto multiplier = [&](std::string_view key) {
    const double value = fields.number(key).value_or(1.0);
    if (!(value > 0)) fields.wrong(key, Json(value), "a positive number");
    return value;
  };
  c.embedding_scale = multiplier("embedding_multiplier");
  c.logit_scale = 1.0 / multiplier("logits_scaling");
  const double residual = multiplier("residual_multiplier"), scores = multiplier("attention_multiplier");
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.residual_scale = residual;
    spec.score_scale = scores;
  });
}

// Command R7B, Command A (Cohere 2): one layer norm for both branches, interleaved pairs; layers that slide rotate, the others do not.
inline void describe_cohere2(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.max_positions = 8192, .tied = true, .padding = 0}, c);
  if (c.head_dim != c.hidden_size / c.heads)
    fields.wrong("head_dim", Json(c.head_dim), "hidden_size / num_attention_heads, as transformers takes it");
  c.norm = {.epsilon = fields.number("layer_norm_eps").value_or(1e-5), .rounded_once = true, .centred = true};
  c.logit_scale = fields.number("logit_scale").value_or(0.0625);
  if (!(c.logit_scale > 0)) fields.wrong("logit_scale", Json(c.logit_scale), "a positive number");
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0, {.interleaved = true})};
  const bool bias = fields.boolean("attention_bias").value_or(false);
  const std::int64_t pattern = fields.positive("sliding_window_pattern", 4);
  const std::int64_t window = fields.positive("sliding_window", 4096);
  if (fields.has_null("sliding_window")) fields.wrong("sliding_window", Json(nullptr), "a number of tokens");
  read_windows(
      fields, window, true, [&](const LayerSpec&, std::int64_t layer) { return (layer + 1) % pattern != 0; }, c);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.norms.mlp = "";
    spec.parallel = true;
    spec.qkv_bias = spec.output_bias = bias;
    if (spec.window == 0) spec.rope = LayerSpec::no_rope;
  });
}

// Qwen3 with experts. Where there is a window, all layers have it.
inline void describe_qwen3_moe(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 4}, c);
  const bool bias = fields.boolean("attention_bias").value_or(false);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
  const std::int64_t window = slides_at_all(fields) ? fields.positive("sliding_window", 4096) : 0;
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.qkv_bias = spec.output_bias = bias;
    spec.head_norm = HeadNorm::each;
    spec.window = window;
    spec.mlp_adapters = false;
  });
  read_sparse_layers(fields, {.width = fields.positive("moe_intermediate_size", 768)}, {.count = 128, .chosen = 8}, c);
}

// Qwen1.5 and Qwen2 with experts, and one that all tokens pass. Every second of the first max_window_layers may slide.
inline void describe_qwen2_moe(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 16}, c);
  const bool bias = fields.boolean("qkv_bias").value_or(true);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) { spec.qkv_bias = bias; });
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0)};
  const bool slides = slides_at_all(fields);
  const std::int64_t window = slides ? fields.positive("sliding_window", 4096) : 0;
  const std::int64_t first = fields.integer("max_window_layers").value_or(28);
  read_windows(
      fields, window, true,
      [&](const LayerSpec&, std::int64_t layer) { return slides && layer % 2 == 0 && layer < first; }, c);
  read_sparse_layers(fields,
                     {.width = fields.positive("moe_intermediate_size", 1408),
                      .shared_width = fields.positive("shared_expert_intermediate_size", 5632)},
                     {.count = 60, .chosen = 4, .two_spellings = false}, c);
}

// All layers have experts, whose weights sum to 1, and a window, unless it is null.
inline void describe_mixtral(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 8, .max_positions = 131072}, c);
  c.norm.epsilon = fields.number("rms_norm_eps").value_or(1e-5);
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 1000000.0)};
  const std::int64_t window = fields.find("sliding_window") == nullptr ? 0 : fields.positive("sliding_window");
  const std::int64_t count = read_expert_count(fields, {.count = 8, .chosen = 2});
  if (count == 0) fields.wrong("num_local_experts", Json(count), "1 or more");
  const ExpertSpec experts{.count = count,
                           .chosen = read_chosen(fields, 2, count),
                           .width = c.intermediate_size,
                           .normalised = true,
                           .block = "block_sparse_moe",
                           .gate_proj = "w1",
                           .up_proj = "w3",
                           .down_proj = "w2"};
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.window = window;
    spec.experts = experts;
    spec.mlp_adapters = false;
  });
  read_balance(fields, c);
  if (const auto noise = fields.number("router_jitter_noise"); noise && *noise != 0.0)
    fields.unsupported("router_jitter_noise", Json(*noise), "0: a router sees what the experts see");
}

// gpt-oss (arXiv 2508.10925): sinks in every head, every other layer slides, biases everywhere, experts with clamped gates.
inline void describe_gpt_oss(const JsonFields& fields, DecoderConfig& c) {
  read_shape(fields, {.kv_heads = 8, .head_dim = 64, .max_positions = 131072, .epsilon = 1e-5}, c);
  c.norm.rounded_once = true;
  const bool bias = fields.boolean("attention_bias").value_or(true);
  const bool says_rotation = fields.find("rope_parameters") != nullptr || fields.find("rope_scaling") != nullptr;
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 150000.0)};
  if (!says_rotation) {
    RopeConfig& rope = c.ropes.front();
    rope.kind = RopeConfig::Kind::yarn;
    rope.factor = 32.0;
    rope.original_max_position_embeddings = 4096.0;
    rope.truncate = false;
    rope.attention_factor = 0.1 * std::log(rope.factor) + 1.0;
  }
  const std::int64_t window = fields.positive("sliding_window", 128);
  read_windows(
      fields, window, true, [](const LayerSpec&, std::int64_t layer) { return layer % 2 == 0; }, c);
  const std::int64_t count = read_expert_count(fields, {.count = 128, .chosen = 4});
  if (count == 0) fields.wrong("num_local_experts", Json(count), "1 or more");
  const auto positive = [&](std::string_view key, double fallback) {
    const double value = fields.number(key).value_or(fallback);
    if (!(value > 0)) fields.wrong(key, Json(value), "a positive number");
    return value;
  };
  const ExpertSpec experts{.count = count,
                           .chosen = read_chosen(fields, 4, count),
                           .width = c.intermediate_size,
                           .normalised = true,
                           .bias = true,
                           .gate_limit = positive("swiglu_limit", 7.0),
                           .gate_slope = positive("swiglu_alpha", 1.702),
                           .router = "router",
                           .joined_files = true};
  each_spec(c, [&](LayerSpec& spec, std::int64_t) {
    spec.sinks = true;
    spec.qkv_bias = spec.output_bias = bias;
    spec.experts = experts;
    spec.mlp_adapters = false;
  });
  read_balance(fields, c);
}

// Of Qwen3-Next and Qwen3.5: norms by 1 + w, three layers of four with a gated delta rule, the fourth with an output gate and a
// quarter of a head rotated. mrope_section and its order are for images: the three positions of a text are one.
inline void read_qwen_delta(const JsonFields& fields, const FamilyDefaults& defaults, bool grouped, DecoderConfig& c) {
  read_shape(fields, defaults, c);
  c.norm.unit_offset = true;
  c.unread = {"mtp."};  // heads that predict several tokens
  if (!grouped) c.unread.emplace_back("model.visual.");
  if (c.spec(0).activation != Activation::silu)
    fields.unsupported("hidden_act", *fields.find("hidden_act"), "\"silu\"");
  c.ropes = {parse_rope(fields, c.max_position_embeddings, 10000.0, {.head_dim = c.head_dim, .partial = 0.25})};
  const DeltaSpec delta{.key_heads = fields.positive("linear_num_key_heads", 16),
                        .value_heads = fields.positive("linear_num_value_heads", 32),
                        .key_dim = fields.positive("linear_key_head_dim", 128),
                        .value_dim = fields.positive("linear_value_head_dim", 128),
                        .kernel = fields.positive("linear_conv_kernel_dim", 4),
                        .grouped = grouped};
  if (delta.value_heads % delta.key_heads != 0)
    fields.wrong("linear_num_key_heads", Json(delta.key_heads), "a divisor of linear_num_value_heads");
  const Json* types = fields.find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() < c.specs.size()))
    fields.wrong("layer_types", *types, "one name per layer");
  const std::int64_t interval = fields.positive("full_attention_interval", 4);
  const bool bias = fields.boolean("attention_bias").value_or(false);
  each_spec(c, [&](LayerSpec& spec, std::int64_t layer) {
    bool linear = (layer + 1) % interval != 0;
    if (types != nullptr) {
      const Json& type = (*types)[static_cast<std::size_t>(layer)];
      linear = type == "linear_attention";
      if (!linear && type != "full_attention")
        fields.unsupported("layer_types", type, "\"linear_attention\" or \"full_attention\"");
    }
    if (linear) {
      spec.delta = delta;
      spec.rope = LayerSpec::no_rope;
      return;
    }
    spec.qkv_bias = spec.output_bias = bias;
    spec.head_norm = HeadNorm::each;
    spec.output_gate = true;
  });
}

// Qwen3.5, dense.
inline void describe_qwen3_5(const JsonFields& fields, DecoderConfig& c) {
  read_qwen_delta(fields, {.kv_heads = 4, .head_dim = 256}, false, c);
}

// Qwen3.5 with experts in every layer, and one that all tokens pass; their weights sum to 1.
inline void describe_qwen3_5_moe(const JsonFields& fields, DecoderConfig& c) {
  ExpertSpec experts{.width = fields.positive("moe_intermediate_size", 512),
                     .shared_width = fields.positive("shared_expert_intermediate_size", 512),
                     .normalised = true};
  read_qwen_delta(fields, {.kv_heads = 2, .head_dim = 256, .intermediate = experts.width}, false, c);
  const ExpertDefaults defaults{.count = 256, .chosen = 8, .two_spellings = false};
  experts.count = read_expert_count(fields, defaults);
  if (experts.count == 0) fields.wrong("num_experts", Json(experts.count), "1 or more");
  experts.chosen = read_chosen(fields, defaults.chosen, experts.count);
  each_spec(c, [&](LayerSpec& spec, std::int64_t) { spec.experts = experts; });
  read_balance(fields, c);
}

// Qwen3-Next: maps grouped by key head, and experts in the layers that decoder_sparse_step and mlp_only_layers leave.
inline void describe_qwen3_next(const JsonFields& fields, DecoderConfig& c) {
  read_qwen_delta(fields, {.kv_heads = 2, .head_dim = 256, .intermediate = 5632}, true, c);
  read_sparse_layers(fields,
                     {.width = fields.positive("moe_intermediate_size", 512),
                      .shared_width = fields.positive("shared_expert_intermediate_size", 512),
                      .normalised = fields.boolean("norm_topk_prob").value_or(true)},
                     {.count = 512, .chosen = 10, .two_spellings = false}, c);
  each_spec(c, [](LayerSpec& spec, std::int64_t) { spec.mlp_adapters = false; });
}

struct Family {
  std::string_view model_type, architecture, who;
  void (*describe)(const JsonFields& fields, DecoderConfig& config);
};

inline constexpr Family families[] = {
    {"llama", "LlamaForCausalLM", "Llama 2 and 3, SmolLM2, TinyLlama", describe_llama},
    {"mistral", "MistralForCausalLM", "Mistral", describe_mistral},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2 and Qwen2.5", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3, dense", describe_qwen3},
    {"smollm3", "SmolLM3ForCausalLM", "SmolLM3", describe_smollm3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3, mixture of experts", describe_qwen3_moe},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "Qwen1.5 and Qwen2, mixture of experts", describe_qwen2_moe},
    {"mixtral", "MixtralForCausalLM", "Mixtral", describe_mixtral},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "Qwen3.5, text", describe_qwen3_5},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "Qwen3.5, text, mixture of experts", describe_qwen3_5_moe},
    {"qwen3_next", "Qwen3NextForCausalLM", "Qwen3-Next", describe_qwen3_next},
    {"gemma2", "Gemma2ForCausalLM", "Gemma 2", describe_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", "Gemma 3, text", describe_gemma3},
    {"olmo2", "Olmo2ForCausalLM", "OLMo 2", describe_olmo2},
    {"phi3", "Phi3ForCausalLM", "Phi-3, Phi-3.5, Phi-4", describe_phi3},
    {"glm4", "Glm4ForCausalLM", "GLM-4 0414", describe_glm4},
    {"granite", "GraniteForCausalLM", "Granite 3", describe_granite},
    {"cohere2", "Cohere2ForCausalLM", "Command R7B, Command A", describe_cohere2},
    {"gpt_oss", "GptOssForCausalLM", "gpt-oss", describe_gpt_oss},
};

}  // namespace rlalgo::model::detail
