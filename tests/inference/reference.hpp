// A decoder by the book: whole sequences, no cache, plain tensor operations, in f64. What the engine is measured
// against.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>

namespace reference {

using rlalgo::model::DecoderConfig;
using rlalgo::model::DecoderWeights;

inline DecoderConfig tiny(const std::string& type = "llama") {
  DecoderConfig c;
  c.model_type = type;
  c.vocab_size = 101;
  c.hidden_size = 48;
  c.intermediate_size = 88;
  c.layers = 3;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.max_position_embeddings = 160;
  c.norm.epsilon = 1e-5;
  c.specs[0].qkv_bias = type == "qwen2";
  if (type == "qwen3") c.specs[0].head_norm = rlalgo::model::HeadNorm::each;
  if (type == "experts")
    c.specs[0].experts = {.count = 6, .chosen = 2, .width = 29, .shared_width = 21, .normalised = true};
  c.tied_embeddings = type != "llama";
  return c;
}

// Weights large enough that the distributions are far from uniform.
inline DecoderWeights random_weights(const DecoderConfig& c, std::uint64_t seed, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(seed);
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, double scale = 1.6) {
    return (at::randn({rows, columns}) * (scale / std::sqrt(static_cast<double>(columns)))).to(dtype);
  };
  const auto vector = [&](std::int64_t n, double mean, double scale) {
    return (mean + scale * at::randn({n})).to(dtype);
  };
  DecoderWeights w;
  w.embedding = at::randn({c.vocab_size, c.hidden_size}).to(dtype);
  for (std::int64_t l = 0; l < c.layers; ++l) {
    rlalgo::model::LayerWeights layer;
    layer.attention_norm = vector(c.hidden_size, 1.0, 0.1);
    layer.mlp_norm = vector(c.hidden_size, 1.0, 0.1);
    layer.q_proj.weight = matrix(c.heads * c.head_dim, c.hidden_size);
    layer.k_proj.weight = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    layer.v_proj.weight = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    layer.o_proj.weight = matrix(c.hidden_size, c.heads * c.head_dim);
    layer.gate_proj.weight = matrix(c.intermediate_size, c.hidden_size);
    layer.up_proj.weight = matrix(c.intermediate_size, c.hidden_size);
    layer.down_proj.weight = matrix(c.hidden_size, c.intermediate_size);
    const rlalgo::model::LayerSpec& spec = c.spec(l);
    if (spec.qkv_bias)
      for (auto* linear : {&layer.q_proj, &layer.k_proj, &layer.v_proj})
        linear->bias = vector(linear->weight.size(0), 0.0, 0.5);
    if (spec.output_bias) layer.o_proj.bias = vector(c.hidden_size, 0.0, 0.5);
    if (spec.mlp_bias)
      for (auto* linear : {&layer.gate_proj, &layer.up_proj, &layer.down_proj})
        linear->bias = vector(linear->weight.size(0), 0.0, 0.5);
    if (spec.experts.count > 0) {
      layer.gate_proj = layer.up_proj = layer.down_proj = {};
      const auto fill = [&](std::string_view, auto member, std::int64_t rows, std::int64_t columns, bool) {
        member(layer).weight = matrix(rows, columns);
      };
      rlalgo::model::visit_experts(c, spec.experts, fill, fill);
    }
    if (spec.head_norm == rlalgo::model::HeadNorm::each) {
      layer.q_norm = vector(c.head_dim, 1.0, 0.2);
      layer.k_norm = vector(c.head_dim, 1.0, 0.2);
    }
    w.layers.push_back(layer);
  }
  w.final_norm = vector(c.hidden_size, 1.0, 0.1);
  w.lm_head = c.tied_embeddings ? w.embedding : matrix(c.vocab_size, c.hidden_size, 3.0);
  return w;
}

inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight.to(at::kDouble);
}

inline at::Tensor linear(const rlalgo::model::Linear& l, const at::Tensor& x) {
  at::Tensor y = x.matmul(l.weight.to(at::kDouble).t());
  return l.bias.defined() ? y + l.bias.to(at::kDouble) : y;
}

inline at::Tensor rotate(const at::Tensor& x, double theta) {  // [T, heads, d]
  const std::int64_t t = x.size(0), d = x.size(2);
  const at::Tensor inverse = at::pow(theta, -at::arange(0, d, 2).to(at::kDouble) / static_cast<double>(d));
  const at::Tensor angle = at::arange(t).to(at::kDouble).unsqueeze(1) * inverse;  // [T, d/2]
  const at::Tensor c = at::cat({angle, angle}, 1).cos().unsqueeze(1);
  const at::Tensor s = at::cat({angle, angle}, 1).sin().unsqueeze(1);
  const at::Tensor half = at::cat({-x.slice(2, d / 2), x.slice(2, 0, d / 2)}, 2);
  return x * c + half * s;
}

// [T, V] logits of one sequence.
inline at::Tensor logits(const DecoderConfig& c, const DecoderWeights& w,
                         const std::vector<rlalgo::data::TokenId>& ids) {
  c10::NoGradGuard no_grad;
  const std::int64_t t = static_cast<std::int64_t>(ids.size());
  at::Tensor index = at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end()));
  at::Tensor x = w.embedding.to(at::kDouble).index_select(0, index);
  const at::Tensor mask = at::full({t, t}, -INFINITY, at::kDouble).triu(1);
  for (const auto& layer : w.layers) {
    const at::Tensor h = rms_norm(x, layer.attention_norm, c.norm.epsilon);
    at::Tensor q = linear(layer.q_proj, h).view({t, c.heads, c.head_dim});
    at::Tensor k = linear(layer.k_proj, h).view({t, c.kv_heads, c.head_dim});
    at::Tensor v = linear(layer.v_proj, h).view({t, c.kv_heads, c.head_dim});
    if (c.spec(0).head_norm == rlalgo::model::HeadNorm::each) {
      q = rms_norm(q, layer.q_norm, c.norm.epsilon);
      k = rms_norm(k, layer.k_norm, c.norm.epsilon);
    }
    q = rotate(q, c.ropes[0].theta).transpose(0, 1);
    k = rotate(k, c.ropes[0].theta).transpose(0, 1).repeat_interleave(c.heads / c.kv_heads, 0);
    v = v.transpose(0, 1).repeat_interleave(c.heads / c.kv_heads, 0);
    const at::Tensor p = (q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(c.head_dim)) + mask).softmax(-1);
    x = x + linear(layer.o_proj, p.matmul(v).transpose(0, 1).reshape({t, c.heads * c.head_dim}));
    const at::Tensor g = rms_norm(x, layer.mlp_norm, c.norm.epsilon);
    const auto mlp = [&](const auto& parts) {
      const at::Tensor gate = linear(parts.gate_proj, g);
      return linear(parts.down_proj, gate * gate.sigmoid() * linear(parts.up_proj, g));
    };
    if (const auto& experts = c.spec(0).experts; experts.count > 0) {
      const at::Tensor p = linear(layer.router, g).softmax(-1);
      at::Tensor strength = p * p.ge(std::get<0>(p.topk(experts.chosen, -1)).select(-1, -1).unsqueeze(-1));
      if (experts.normalised) strength = strength / strength.sum(-1, true);
      at::Tensor y = linear(layer.shared_gate, g).sigmoid() * mlp(layer.shared);
      for (std::size_t e = 0; e < layer.experts.size(); ++e)
        y = y + strength.select(-1, static_cast<std::int64_t>(e)).unsqueeze(-1) * mlp(layer.experts[e]);
      x = x + y;
    } else {
      x = x + mlp(layer);
    }
  }
  return rms_norm(x, w.final_norm, c.norm.epsilon).matmul(w.lm_head.to(at::kDouble).t());
}

}  // namespace reference
