// What the families of models read alike of config.json: sizes, and which layers have a window.
//
// Errors: [rlalgo.model.9] a field of the wrong value; [.11] unsupported feature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/config_fields.hpp>

namespace rlalgo::model::detail {

// What a family takes where config.json says nothing.
struct FamilyDefaults {
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / heads
  std::int64_t max_positions = 32768;
  std::optional<std::int64_t> intermediate = {};  // must be there
  bool tied = false;
  std::int64_t padding = -1;  // pad_token_id
  double epsilon = 1e-6;      // rms_norm_eps
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
};

// Sizes, ties, padding and activation, and as many equal layers; a family whose layers all have experts may have no other width.
inline void read_shape(const JsonFields& fields, const FamilyDefaults& defaults, DecoderConfig& c) {
  c.vocab_size = fields.positive("vocab_size");
  c.hidden_size = fields.positive("hidden_size");
  c.intermediate_size = fields.positive("intermediate_size", defaults.intermediate);
  c.layers = fields.positive("num_hidden_layers");
  if (c.layers > 4096) fields.wrong("num_hidden_layers", Json(c.layers), "at most 4096");
  c.heads = fields.positive("num_attention_heads");
  c.kv_heads =
      fields.positive("num_key_value_heads",
                      fields.has_null("num_key_value_heads") || defaults.kv_heads == 0 ? c.heads : defaults.kv_heads);
  c.head_dim = fields.positive("head_dim", defaults.head_dim == 0 ? c.hidden_size / c.heads : defaults.head_dim);
  c.max_position_embeddings = fields.positive("max_position_embeddings", defaults.max_positions);
  if (c.heads % c.kv_heads != 0)
    fields.wrong("num_key_value_heads", Json(c.kv_heads), "a divisor of num_attention_heads");
  if (c.head_dim % 2 != 0) fields.wrong("head_dim", Json(c.head_dim), "an even number");
  c.norm.epsilon = fields.number("rms_norm_eps").value_or(defaults.epsilon);
  c.tied_embeddings = fields.boolean("tie_word_embeddings").value_or(defaults.tied);
  const std::string activation = fields.text(defaults.activation_key).value_or(std::string(defaults.activation));
  LayerSpec spec;
  if (activation == "gelu_pytorch_tanh")
    spec.activation = Activation::gelu_tanh;
  else if (activation != "silu" && activation != "swish")
    fields.unsupported(defaults.activation_key, Json(activation), "\"silu\" or \"gelu_pytorch_tanh\"");
  c.specs.assign(static_cast<std::size_t>(c.layers), spec);
  const auto padding = fields.integer("pad_token_id");
  c.padding_id = fields.has_null("pad_token_id") ? -1 : padding.value_or(defaults.padding);
  if (padding && c.padding_id < 0) c.padding_id += c.vocab_size;  // torch's padding_idx counts from the end
}

template <class F>
void each_spec(DecoderConfig& c, F&& f) {
  for (std::size_t i = 0; i < c.specs.size(); ++i) f(c.specs[i], static_cast<std::int64_t>(i));
}

// Whether each layer slides: as layer_types says, where the family reads that, else as slides(layer).
template <class F>
void read_windows(const JsonFields& fields, std::int64_t window, bool may_slide, F&& slides, DecoderConfig& c) {
  const Json* types = fields.find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() < c.specs.size()))
    fields.wrong("layer_types", *types, "one name per layer");
  each_spec(c, [&](LayerSpec& spec, std::int64_t layer) {
    bool sliding = types == nullptr && slides(spec, layer);
    if (types != nullptr) {
      const Json& type = (*types)[static_cast<std::size_t>(layer)];
      sliding = may_slide && type == "sliding_attention";
      if (!sliding && type != "full_attention")
        fields.unsupported("layer_types", type,
                           "\"full_attention\"" + std::string(may_slide ? " or \"sliding_attention\"" : ""));
    }
    if (sliding) spec.window = window;
  });
}

inline constexpr auto no_layer_slides = [](const LayerSpec&, std::int64_t) { return false; };

// The window where use_sliding_window is on.
[[nodiscard]] inline bool slides_at_all(const JsonFields& fields) {
  return fields.boolean("use_sliding_window").value_or(false) && !fields.has_null("sliding_window");
}

}  // namespace rlalgo::model::detail
