#include <rlalgo/model/decoder_layer.hpp>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/attention.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/weight_names.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>

using namespace rlalgo;

namespace {

struct Setup {
  model::DecoderConfig config;
  model::DecoderWeights weights;
  model::TokenTree tree;
  const model::Operations& operations;
  model::AttentionLayout layout;
  model::RopeTable rope;
  model::DeltaLayout delta;

  // "TYPE/attention": the layers of TYPE that attend, where its first one does not.
  static model::DecoderConfig config_of(const std::string& type) {
    auto json = rlalgo::support::small_config(type.substr(0, type.find('/')));
    if (type.ends_with("/attention")) json["layer_types"] = {"full_attention", "full_attention"};
    return model::parse_hf_config(json, "test").decoder;
  }
  explicit Setup(const std::string& type, const model::Operations& used = model::operations_for(at::kCPU))
      : config(config_of(type)), operations(used) {
    config.layers = 1;
    weights.layers.resize(1);
    model::visit_weights(config, weights,
                         [](const std::string&, at::Tensor& value, const auto& shape, model::WeightRole) {
                           value = at::randn(shape, at::kDouble).requires_grad_();
                         });
    tree.segments = {{0, 4, -1, 0}, {4, 6, 0, 4}, {6, 9, 0, 4}};
    tree.positions = {0, 1, 2, 3, 4, 5, 4, 5, 6};
    tree.ids.assign(9, 0);
    layout = operations.lay_out(model::plan_attention(tree), at::kCPU);
    layout.scale = config.spec(0).score_scale;
    layout.cap = config.spec(0).score_cap;
    if (config.spec(0).delta.present()) delta = model::lay_out_delta(tree, config.spec(0).delta.kernel, at::kCPU);
    rope =
        model::rope_table(model::rope_frequencies(config.ropes[0], config.head_dim), tree.positions, config.ropes[0]);
  }
  [[nodiscard]] model::LayerContext context() const {
    return {.config = config,
            .spec = config.spec(0),
            .operations = operations,
            .layout = layout,
            .rope = &rope,
            .delta = &delta};
  }
};

// Every token sees what the tree shows it, by a mask of all pairs.
at::Tensor attention(const Setup& s, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto& c = s.config;
  const auto& spec = c.spec(0);
  const std::int64_t tokens = q.size(0);
  auto hidden = at::ones({tokens, tokens}, at::kBool);
  for (std::size_t segment = 0; segment < s.tree.segments.size(); ++segment)
    for (auto of = static_cast<std::int64_t>(segment); of >= 0;
         of = s.tree.segments[static_cast<std::size_t>(of)].parent)
      for (std::int64_t i = s.tree.segments[segment].begin; i < s.tree.segments[segment].end; ++i)
        for (std::int64_t j = s.tree.segments[static_cast<std::size_t>(of)].begin;
             j < s.tree.segments[static_cast<std::size_t>(of)].end && j <= i; ++j)
          hidden[i][j] = false;
  const double scale = spec.score_scale != 0.0 ? spec.score_scale : 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  const auto heads = [&](const at::Tensor& x) {
    return x.repeat_interleave(c.heads / x.size(1), 1).transpose(0, 1);  // [n, T, D]
  };
  auto scores = heads(q).matmul(heads(k).transpose(1, 2)) * scale;
  if (spec.score_cap > 0) scores = at::tanh(scores / spec.score_cap) * spec.score_cap;
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (const auto& sinks = s.weights.layers[0].sinks; sinks.defined()) {
    const auto more = at::cat({scores, sinks.view({-1, 1, 1}).expand({c.heads, tokens, 1})}, -1).softmax(-1);
    return more.narrow(-1, 0, tokens).matmul(heads(v)).transpose(0, 1);
  }
  return scores.softmax(-1).matmul(heads(v)).transpose(0, 1);
}

// The layer from differentiable ATen operations.
at::Tensor reference(const Setup& s, const at::Tensor& x) {
  const auto& c = s.config;
  const auto& w = s.weights.layers[0];
  const auto& spec = c.spec(0);
  const auto norm = [&](const at::Tensor& t, const at::Tensor& weight) {
    if (!weight.defined()) return t;
    if (c.norm.centred) return at::layer_norm(t, {t.size(-1)}, weight, {}, c.norm.epsilon);
    return t * (t.square().mean(-1, true) + c.norm.epsilon).rsqrt() * (c.norm.unit_offset ? weight + 1.0 : weight);
  };
  const auto map = [](const at::Tensor& t, const model::Linear& l) {
    return at::linear(t, l.weight, l.bias.defined() ? std::optional(l.bias) : std::nullopt);
  };
  const auto rotate = [&](const at::Tensor& t) {
    const auto cosine = s.rope.cosine.to(at::kDouble).unsqueeze(1), sine = s.rope.sine.to(at::kDouble).unsqueeze(1);
    const std::int64_t width = 2 * s.rope.cosine.size(1);
    const auto part = t.narrow(-1, 0, width), rest = t.narrow(-1, width, t.size(-1) - width);
    const auto pairs = part.unflatten(-1, {width / 2, 2});
    const auto a = s.rope.interleaved ? pairs.select(-1, 0) : part.chunk(2, -1)[0];
    const auto b = s.rope.interleaved ? pairs.select(-1, 1) : part.chunk(2, -1)[1];
    const auto first = a * cosine - b * sine, second = b * cosine + a * sine;
    const auto rotated = s.rope.interleaved ? at::stack({first, second}, -1).flatten(-2) : at::cat({first, second}, -1);
    return at::cat({rotated, rest}, -1);
  };
  const auto n = norm(x, w.attention_norm);
  const std::int64_t queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  // gated_delta_test.cpp has the rule itself.
  const auto mixed = [&] {
    return model::delta_forward(spec.delta, c.norm.epsilon, w, model::delta_inputs(spec.delta, w, n, {}), s.delta);
  };
  at::Tensor gate;
  const auto query = [&] {
    if (!spec.output_gate) return map(n, w.q_proj);
    const auto both = map(n, w.q_proj).view({n.size(0), c.heads, 2, c.head_dim});
    gate = both.select(2, 1).flatten(1);
    return both.select(2, 0).flatten(1);
  };
  const auto attend = [&] {
    const auto qkv = spec.fused_qkv ? map(n, w.qkv_proj) : at::cat({query(), map(n, w.k_proj), map(n, w.v_proj)}, 1);
    auto q = qkv.narrow(1, 0, queries), k = qkv.narrow(1, queries, keys);
    if (spec.head_norm == model::HeadNorm::all) q = norm(q, w.q_norm), k = norm(k, w.k_norm);
    q = q.reshape({-1, c.heads, c.head_dim}), k = k.reshape({-1, c.kv_heads, c.head_dim});
    const auto v = qkv.narrow(1, queries + keys, keys).reshape({-1, c.kv_heads, c.head_dim});
    if (spec.head_norm == model::HeadNorm::each) q = norm(q, w.q_norm), k = norm(k, w.k_norm);
    const auto out = attention(s, rotate(q), rotate(k), v).reshape({-1, queries});
    return gate.defined() ? out * gate.sigmoid() : out;
  };
  const auto attended = spec.delta.present() ? mixed() : attend();
  const auto m = x + norm(map(attended, w.o_proj), w.attention_output_norm) * spec.residual_scale;
  const auto u = spec.parallel ? n : norm(m, w.mlp_norm);
  const auto product = [&](const at::Tensor& gate, const at::Tensor& up, const model::Linear& down) {
    if (const double limit = spec.experts.gate_limit; limit > 0) {
      const auto g = gate.clamp_max(limit);
      return map(g * at::sigmoid(g * spec.experts.gate_slope) * (up.clamp(-limit, limit) + 1.0), down);
    }
    const auto active = spec.activation == model::Activation::silu ? at::silu(gate) : at::gelu(gate, "tanh");
    return map(active * up, down);
  };
  const auto mlp = [&](const auto& parts) {
    return product(map(u, parts.gate_proj), map(u, parts.up_proj), parts.down_proj);
  };
  if (spec.experts.count == 0) {
    const auto both = spec.fused_gate_up ? map(u, w.gate_up_proj).chunk(2, 1) : std::vector<at::Tensor>{};
    const auto y = spec.fused_gate_up ? product(both[0], both[1], w.down_proj) : mlp(w);
    return m + norm(y, w.mlp_output_norm) * spec.residual_scale;
  }
  // Every expert sees every token; what was not chosen has weight 0.
  const auto p = map(u, w.router).softmax(-1);
  const auto least = std::get<0>(p.topk(spec.experts.chosen, -1)).select(-1, -1).unsqueeze(-1);
  auto strength = p * p.ge(least);
  if (spec.experts.normalised) strength = strength / strength.sum(-1, true);
  at::Tensor y = at::zeros_like(m);
  for (std::size_t e = 0; e < w.experts.size(); ++e)
    y = y + strength.select(-1, static_cast<std::int64_t>(e)).unsqueeze(-1) * mlp(w.experts[e]);
  if (spec.experts.shared_width > 0) y = y + map(u, w.shared_gate).sigmoid() * mlp(w.shared);
  return m + norm(y, w.mlp_output_norm);
}

}  // namespace

TEST_CASE("a layer equals its formula in every architecture, values and gradients, all rows or some") {
  const model::AtenOperations aten;
  const model::Operations* const versions[] = {&model::operations_for(at::kCPU), &aten};
  for (const char* type : {"llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "phi3", "glm4", "granite",
                           "qwen3_moe", "qwen2_moe", "mixtral", "cohere2", "gpt_oss", "qwen3_5_text",
                           "qwen3_5_text/attention", "qwen3_5_moe_text", "qwen3_next"}) {
    for (const auto& [some, version] : {std::pair{false, 0}, {true, 0}, {true, 1}}) {
      Setup s(type, *versions[version]);
      const auto x = at::randn({9, 12}, at::kDouble).requires_grad_();
      const at::Tensor rows = some ? at::tensor({std::int64_t{3}, std::int64_t{5}, std::int64_t{8}}) : at::Tensor();
      auto expected = reference(s, x);
      if (some) expected = expected.index_select(0, rows);
      const auto grad = at::randn_like(expected);
      expected.backward(grad);
      std::vector<at::Tensor> gradients;
      const auto each = [&](auto&& f) {
        model::visit_weights(s.config, s.weights,
                             [&](const std::string& name, at::Tensor& value, const auto&, model::WeightRole) {
                               if (name.starts_with("model.layers")) f(name, value);
                             });
      };
      each([&](const std::string&, at::Tensor& value) {
        gradients.push_back(value.grad().clone());
        value.mutable_grad() = at::Tensor();
      });

      const c10::NoGradGuard no_grad;
      model::LayerTape tape;
      const auto out = model::layer_forward(s.context(), s.weights.layers[0], x.detach(), rows, &tape);
      CHECK(out.allclose(expected, 1e-10, 1e-10));
      CHECK(model::layer_forward(s.context(), s.weights.layers[0], x.detach(), rows, nullptr).equal(out));
      const auto grad_x = model::layer_backward(s.context(), s.weights.layers[0], std::move(tape), grad.clone());
      CHECK(grad_x.allclose(x.grad(), 1e-9, 1e-9));
      std::size_t i = 0;
      each([&](const std::string& name, at::Tensor& value) {
        INFO(type << " " << name);
        CHECK(value.grad().allclose(gradients[i++], 1e-9, 1e-9));
      });
    }
  }
}
