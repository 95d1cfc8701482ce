// Small configurations of each architecture.
#pragma once

#include <string>
#include <utility>

#include <rlalgo/model/hf_config.hpp>

namespace rlalgo::support {

// config.json of a decoder with every count small and odd where it may be.
inline model::Json small_config(const std::string& model_type) {
  model::Json json = {{"model_type", model_type},
                      {"vocab_size", 23},
                      {"hidden_size", 12},
                      {"intermediate_size", 10},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"head_dim", 6},
                      {"rms_norm_eps", 1e-5},
                      {"max_position_embeddings", 512},
                      {"rope_theta", 100.0},
                      {"initializer_range", 0.4},
                      {"tie_word_embeddings", model_type != "qwen3"},
                      {"eos_token_id", 2}};
  if (model_type == "llama") json["mlp_bias"] = json["attention_bias"] = true;
  if (model_type == "olmo2" || model_type == "phi3" || model_type == "glm4") json["pad_token_id"] = nullptr;
  if (model_type == "phi3") json["partial_rotary_factor"] = 0.7;
  if (model_type == "glm4") json["partial_rotary_factor"] = 0.7;
  if (model_type == "granite")
    for (const auto& [key, value] : {std::pair("embedding_multiplier", 3.0), std::pair("logits_scaling", 1.7),
                                     std::pair("residual_multiplier", 0.6), std::pair("attention_multiplier", 0.3)})
      json[key] = value;
  if (model_type == "gemma2") json["attn_logit_softcapping"] = 2.0, json["final_logit_softcapping"] = 3.0;
  if (model_type == "gemma3_text" || model_type == "gemma2") {
    json["query_pre_attn_scalar"] = 9;
    json["sliding_window"] = 5;
    json["sliding_window_pattern"] = 2;
    json["rope_local_base_freq"] = 30.0;
    json["pad_token_id"] = nullptr;
  }
  if (model_type == "qwen3_moe" || model_type == "qwen2_moe") {
    json["num_experts"] = 5;
    json["num_experts_per_tok"] = 2;
    json["moe_intermediate_size"] = 6;
    json["norm_topk_prob"] = model_type == "qwen3_moe";
  }
  if (model_type == "qwen2_moe") {
    json["shared_expert_intermediate_size"] = 7;
    json["mlp_only_layers"] = {1};
  }
  if (model_type == "mixtral" || model_type == "gpt_oss") json["num_local_experts"] = 4;
  if (model_type == "gpt_oss") json["num_experts_per_tok"] = 2, json["swiglu_limit"] = 0.4;
  if (model_type == "cohere2")
    for (const auto& [key, value] : {std::pair("num_attention_heads", 2), std::pair("num_key_value_heads", 1)})
      json[key] = value;
  if (model_type == "cohere2") json["logit_scale"] = 0.7, json["pad_token_id"] = nullptr;
  if (model_type.starts_with("qwen3_5") || model_type == "qwen3_next") {
    for (const auto& [key, value] : {std::pair("linear_num_key_heads", 2), std::pair("linear_num_value_heads", 4),
                                     std::pair("linear_key_head_dim", 5), std::pair("linear_value_head_dim", 3),
                                     std::pair("linear_conv_kernel_dim", 3)})
      json[key] = value;
    json["layer_types"] = {"linear_attention", "full_attention"};
    json["partial_rotary_factor"] = 0.7;
  }
  if (model_type == "qwen3_5_moe_text" || model_type == "qwen3_next")
    for (const auto& [key, value] :
         {std::pair("num_experts", 5), std::pair("num_experts_per_tok", 2), std::pair("moe_intermediate_size", 6),
          std::pair("shared_expert_intermediate_size", 7)})
      json[key] = value;
  return json;
}

}  // namespace rlalgo::support
