// Definitions of decoder.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/context_sharing.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/decoder_pass.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/training_flops.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>
#include <rlalgo/tensor/row_mean.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::model {

RLALGO_INLINE Decoder::Decoder(HfConfig hf, DecoderWeights weights) : hf_(std::move(hf)), weights_(std::move(weights)) {
  for (const RopeConfig& rope : config().ropes) frequencies_.push_back(rope_frequencies(rope, config().head_dim));
  if (config().tied_embeddings && !weights_.lm_head.defined()) weights_.lm_head = weights_.embedding;
}

RLALGO_INLINE double Decoder::product_flops(std::int64_t tokens) const {
  std::int64_t elements = 0, products = 0;
  const auto add = [&](std::string_view, auto, std::int64_t out, std::int64_t in, bool) {
    elements += out * in;
    ++products;
  };
  visit_parts(
      config(), config().spec(0), [](auto&&...) {}, add, add, [](auto&&...) {});
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(elements) / static_cast<double>(products);
}

RLALGO_INLINE double Decoder::training_flops(const TokenTree& tree) const {
  return model::training_flops(config(), weights_, tree);
}

RLALGO_INLINE void Decoder::share_context(ContextSharing sharing) {
  if (sharing.shares() && config().carried() > 0)
    core::raise_usage(
        "model", 50,
        {.what = "ranks cannot share the tokens of a row in a model whose layers carry a state from token to token",
         .found = config().model_type + ", with linear attention",
         .remedy = "set context_parallel_size: 1"});
  context_ = std::move(sharing);
}

RLALGO_INLINE Scores Decoder::score_balanced(const TokenTree& tree, const ScoreOptions& options) {
  if (context_.shares())
    core::raise_usage("model", 39,
                      {.what = "the use of experts cannot be balanced where ranks share the tokens of a row",
                       .found = "a weight of " + std::to_string(options.balance_weight) + " of the load-balancing loss",
                       .remedy = "set trl.router_aux_loss_coef: 0, or context_parallel_size: 1"});
  const TokenTree whole = with_last_tokens(tree);
  const Tensor weights =
      tensor::from_values(rows_of_tokens(whole), at::TensorOptions().dtype(at::kFloat).device(device()));
  const auto load = std::make_shared<RouterLoad>(weights, options.balance_weight);
  Scores scores = score_part(whole, options, nullptr, load);
  scores.balance = load->balance();
  return scores;
}

RLALGO_INLINE Scores Decoder::score(const TokenTree& tree, const ScoreOptions& options) {
  if (options.balance_weight != 0.0) return score_balanced(tree, options);
  if (!context_.shares()) return score_part(tree, options, nullptr);
  if (!tree.routed_experts.empty())
    core::raise_usage("model", 44,
                      {.what = "experts cannot be replayed where ranks share the tokens of a row",
                       .remedy = "set trl.router_replay: disabled, or context_parallel_size: 1"});
  const SharedTree shared(context_, tree);
  Scores scores = score_part(shared.part.tree, options, &shared);
  shared.gather({&scores.log_prob, &scores.entropy, &scores.mean_logit, &scores.greedy, &scores.collision});
  return scores;
}

RLALGO_INLINE Scores Decoder::score_part(const TokenTree& tree, const ScoreOptions& options, const SharedTree* shared,
                                         const std::shared_ptr<RouterLoad>& load) {
  const auto limit = tensor::ThreadLimit::of_products(product_flops(tree.tokens()));
  // Rows whose hidden state is needed, each once: children of one prompt share its last token.
  std::vector<std::int64_t> rows = tree.source;
  for (std::int64_t t = 0; load != nullptr && t < tree.tokens(); ++t) rows.push_back(t);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::vector<std::int64_t> compact(tree.source.size());
  for (std::size_t n = 0; n < compact.size(); ++n)
    compact[n] = std::lower_bound(rows.begin(), rows.end(), tree.source[n]) - rows.begin();
  const bool all = shared == nullptr && static_cast<std::int64_t>(rows.size()) == tree.tokens();
  const bool in_order = rows == tree.source;
  tensor::HostBlock own(weights_.embedding.options());
  const bool given = options.block != nullptr && !options.block->sent() && options.block->device() == device();
  tensor::HostBlock& block = given ? *options.block : own;
  const Targets targets = targets_of(tree, options, block);
  const auto replay = tree.routed_experts.empty() ? nullptr : std::make_shared<RouterReplay>(tree, device());
  const Tensor hidden = run(tree, {.depths = {config().layers},
                                   .rows = all ? Tensor() : block.add(rows),
                                   .spread = in_order ? Tensor() : block.add(compact),
                                   .draw = options.draw,
                                   .shared = shared,
                                   .load = load,
                                   .replay = replay,
                                   .block = &block})
                            .front();
  const tensor::LogProbs out = score_targets(hidden, tree, targets, options);
  Scores scores{out.log_prob, out.entropy, {}, out.greedy, {}, {}};
  add_statistics(hidden.detach(), targets, options, scores);
  if (replay != nullptr) scores.replay_mismatch = replay->mismatch();
  return scores;
}

RLALGO_INLINE Decoder::Targets Decoder::targets_of(const TokenTree& tree, const ScoreOptions& options,
                                                   tensor::HostBlock& block) const {
  Targets out{block.add(tree.target)};
  if (tree.untempered == 0 || options.temperature == 1.0 || config().logit_cap != 0.0) return out;
  std::vector<double> scale(tree.target.size(), 1.0 / options.temperature);
  std::fill(scale.end() - static_cast<std::ptrdiff_t>(tree.untempered), scale.end(), 1.0);
  out.inverse_temperature = block.add_numbers(scale, dtype());
  return out;
}

RLALGO_INLINE tensor::LogProbs Decoder::score_targets(const Tensor& hidden, const TokenTree& tree,
                                                      const Targets& targets, const ScoreOptions& options) {
  tensor::LogProbOptions head_options{.temperature = options.temperature / config().logit_scale,
                                      .cap = config().logit_cap,
                                      .entropy = options.entropy,
                                      .entropy_gradient = options.entropy_gradient,
                                      .greedy = options.token_statistics,
                                      .adds_weight_gradient = true};
  const Tensor& target = targets.ids;
  if (!target.is_cpu()) tensor::require_targets(tree.target, weights_.lm_head.size(0));
  const bool mixed = tree.untempered > 0 && options.temperature != 1.0;
  if (!mixed) return tensor::log_prob_head(hidden, head(), target, head_options);
  if (targets.inverse_temperature.defined()) {
    // l/T = (h/T)·w: temperatures that differ between targets divide the states instead of the logits.
    head_options.temperature = 1.0 / config().logit_scale;
    const Tensor tempered = hidden.mul(targets.inverse_temperature.unsqueeze(1));  // [N, H]
    return tensor::log_prob_head(tempered, head(), target, head_options);
  }
  // A cap bends logits before the temperature divides them.
  const std::int64_t all = hidden.size(0), last = static_cast<std::int64_t>(tree.untempered);
  const auto part = [&](std::int64_t begin, std::int64_t count, double temperature) {
    head_options.temperature = temperature / config().logit_scale;
    return tensor::log_prob_head(hidden.narrow(0, begin, count), head(), target.narrow(0, begin, count), head_options);
  };
  const tensor::LogProbs first = part(0, all - last, options.temperature), second = part(all - last, last, 1.0);
  const auto joined = [](const Tensor& a, const Tensor& b) {
    return a.defined() ? tensor::concatenate({a, b}, 0) : Tensor();
  };
  return {joined(first.log_prob, second.log_prob), joined(first.entropy, second.entropy),
          joined(first.greedy, second.greedy)};
}

RLALGO_INLINE std::vector<Tensor> Decoder::features(const TokenTree& tree, std::span<const std::int64_t> layers) {
  for (const std::int64_t layer : layers) {
    if (layer < 0 || layer > config().layers)
      core::raise("model", 32,
                  {.what = "features of a layer that the model has not",
                   .found = std::to_string(layer),
                   .expected = "0 (the embedding) to " + std::to_string(config().layers)});
  }
  if (layers.empty()) return {};
  Taps taps{.depths = {layers.begin(), layers.end()}, .dropout = false};
  std::sort(taps.depths.begin(), taps.depths.end());
  taps.depths.erase(std::unique(taps.depths.begin(), taps.depths.end()), taps.depths.end());
  const std::vector<Tensor> each = run(tree, taps);
  std::vector<Tensor> out;
  for (const std::int64_t layer : layers)
    out.push_back(each[static_cast<std::size_t>(std::lower_bound(taps.depths.begin(), taps.depths.end(), layer) -
                                                taps.depths.begin())]);
  return out;
}

RLALGO_INLINE Tensor Decoder::logits_of(const Tensor& hidden) const {
  Tensor out = tensor::mm(hidden, head().t());
  if (config().logit_scale != 1.0) out = out.mul(config().logit_scale);
  if (config().logit_cap > 0.0) out = out.div(config().logit_cap).tanh_().mul_(config().logit_cap);
  return out;
}

RLALGO_INLINE Tensor Decoder::logits(const TokenTree& tree) {
  const c10::NoGradGuard no_grad;
  return logits_of(hidden_states(tree));
}

RLALGO_INLINE const Operations& Decoder::operations() const {
  return operations_ != nullptr ? *operations_ : operations_for(device());
}

RLALGO_INLINE std::vector<Parameter> Decoder::parameters() {
  const std::string prefix = adapter_ ? adapter_prefix : "";
  std::vector<Parameter> out;
  visit_all([&](const std::string& name, const Tensor& value, WeightRole role) {
    if (value.requires_grad()) out.push_back({prefix + name, value, role == WeightRole::matrix});
  });
  std::sort(out.begin(), out.end(), [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  return out;
}

RLALGO_INLINE void Decoder::adapt(Adapter adapter, DecoderWeights weights) {
  weights_ = std::move(weights);
  adapter_ = std::move(adapter);
}

RLALGO_INLINE void Decoder::replace_embeddings(Tensor embedding, Tensor lm_head) {
  hf_.decoder.vocab_size = embedding.size(0);
  hf_.json["vocab_size"] = embedding.size(0);
  weights_.embedding = std::move(embedding);
  weights_.lm_head = std::move(lm_head);
  embeddings_replaced_ = true;
}

RLALGO_INLINE std::unique_ptr<Decoder> Decoder::without_adapter() const {
  return with_weights(detached(adapter_ ? adapter_->base : weights_));
}

RLALGO_INLINE std::unique_ptr<Decoder> Decoder::reference() const {
  if (!adapter_) return frozen_copy();
  if (!adapter_->continued && adapter_->config.init != LoraInit::pissa) return without_adapter();
  const c10::NoGradGuard no_grad;
  DecoderWeights copy = detached(weights_);
  visit_loras(config(), copy, [](const std::string&, Lora& lora, const Tensor&) {
    for (Tensor* value : {&lora.a, &lora.b, &lora.magnitude})
      if (value->defined()) *value = value->clone();
  });
  visit_weights(untied(), copy, [&](const std::string& name, Tensor& value, const auto&, WeightRole) {
    if (is_saved_module(adapter_->config, name.substr(0, name.rfind('.')))) value = value.clone();
  });
  return with_weights(std::move(copy));
}

RLALGO_INLINE std::vector<std::pair<std::string, Tensor>> Decoder::named_tensors() const {
  std::vector<std::pair<std::string, Tensor>> out;
  visit_weights(config(), weights_, [&](const std::string& name, const Tensor& value, const auto&, WeightRole) {
    out.emplace_back(name, value);
  });
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

RLALGO_INLINE void Decoder::set_trained(bool trained) {
  visit_weights(config(), weights_, [&](const std::string&, Tensor& value, const auto&, WeightRole) {
    if (!is_stand_in(value)) value.requires_grad_(trained);
  });
}

RLALGO_INLINE void Decoder::train_only(const std::vector<std::string>& patterns) {
  set_trained(false);
  for (const std::string& text : patterns) {
    std::string escaped;
    for (const char c : text) escaped += c == '.' ? std::string("\\.") : std::string(1, c);
    const detail::ModulePattern pattern(escaped, false);
    bool found = false;
    visit_weights(config(), weights_, [&](const std::string& name, Tensor& value, const auto&, WeightRole) {
      if (!pattern.matches(name)) return;
      if (is_stand_in(value)) refuse_quantised(name);
      value.requires_grad_(true);
      found = true;
    });
    if (!found)
      core::raise_usage("model", 23,
                        {.what = "unfrozen_parameters names no weight of the model",
                         .found = text,
                         .expected = "a pattern of names like model.layers.0.mlp.up_proj.weight"});
  }
}

RLALGO_INLINE std::unique_ptr<Decoder> Decoder::frozen_copy() const {
  const c10::NoGradGuard no_grad;
  DecoderWeights copy = weights_;
  visit_weights(config(), copy, [](const std::string&, Tensor& value, const auto&, WeightRole) {
    if (!is_stand_in(value)) value = value.detach().clone();
  });
  if (config().tied_embeddings) copy.lm_head = copy.embedding;
  std::unique_ptr<Decoder> out = with_weights(std::move(copy));
  out->set_gate(nullptr);
  return out;
}

RLALGO_INLINE Tensor Decoder::mean_logits(const Tensor& hidden) const {
  if (config().logit_cap == 0.0) {
    const Tensor mean = hidden.mv(tensor::mean_of_rows(head().detach()));
    return config().logit_scale == 1.0 ? mean : mean.mul(config().logit_scale);
  }
  std::vector<Tensor> parts;
  constexpr std::int64_t elements = std::int64_t{1} << 24;
  const std::int64_t rows = std::max<std::int64_t>(1, elements / config().vocab_size);
  for (std::int64_t begin = 0; begin < hidden.size(0); begin += rows)
    parts.push_back(logits_of(hidden.narrow(0, begin, std::min(rows, hidden.size(0) - begin))).mean(-1));
  return parts.empty() ? hidden.new_empty({0}) : tensor::concatenate(parts, 0);
}

RLALGO_INLINE void Decoder::add_statistics(const Tensor& hidden, const Targets& targets, const ScoreOptions& options,
                                           Scores& scores) {
  const c10::NoGradGuard no_grad;
  if (options.token_statistics) scores.mean_logit = mean_logits(hidden);
  if (options.collision)
    scores.collision = scores.log_prob.detach().mul(2.0).sub(
        tensor::log_prob_head(
            hidden, head(), targets.ids,
            {.temperature = options.temperature / 2.0 / config().logit_scale, .cap = config().logit_cap})
            .log_prob);
}

RLALGO_INLINE DecoderConfig Decoder::untied() const {
  DecoderConfig out = config();
  out.tied_embeddings = out.tied_embeddings && same_memory(weights_.lm_head, weights_.embedding);
  return out;
}

RLALGO_INLINE bool Decoder::is_trained() const {
  bool trained = false;
  visit_all([&](const std::string&, const Tensor& value, WeightRole) { trained = trained || value.requires_grad(); });
  return trained;
}

RLALGO_INLINE bool Decoder::same_memory(const Tensor& a, const Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset();
}

RLALGO_INLINE std::unique_ptr<Decoder> Decoder::with_weights(DecoderWeights weights) const {
  auto out = std::make_unique<Decoder>(hf_, std::move(weights));
  out->operations_ = operations_;
  (void)out->set_gate(gate_);
  out->embeddings_replaced_ = embeddings_replaced_;
  return out;
}

RLALGO_INLINE DecoderWeights Decoder::detached(DecoderWeights weights) const {
  const bool tied = same_memory(weights.lm_head, weights.embedding);
  DecoderConfig c = config();
  c.tied_embeddings = false;
  visit_weights(c, weights, [](const std::string&, Tensor& value, const auto&, WeightRole) { value = value.detach(); });
  visit_loras(config(), weights, [](const std::string&, Lora& lora, const Tensor&) {
    for (Tensor* value : {&lora.a, &lora.b, &lora.magnitude})
      if (value->defined()) *value = value->detach();
  });
  if (tied) weights.lm_head = weights.embedding;
  return weights;
}

RLALGO_INLINE Tensor Decoder::head() const {
  const Lora& lora = weights_.lm_head_lora;
  if (!lora.defined()) return weights_.lm_head;
  const Tensor& w = weights_.lm_head;
  Tensor out = tensor::addmm(w.to(lora.a.scalar_type()), lora.b, lora.a, 1.0, lora.scale);
  if (lora.magnitude.defined()) out = out.mul(lora.magnitude.div(adapted_norm(w, lora).detach()).unsqueeze(1));
  return out.to(w.scalar_type());
}

RLALGO_INLINE std::vector<Tensor> Decoder::run(const TokenTree& tree, const Taps& taps) {
  const auto limit = tensor::ThreadLimit::of_products(product_flops(tree.tokens()));
  for (const std::int64_t id : tree.ids) {
    if (id < 0 || id >= config().vocab_size) {
      core::raise("model", 17,
                  {.what = "token id outside the model's vocabulary",
                   .found = std::to_string(id),
                   .expected = "0 to " + std::to_string(config().vocab_size - 1),
                   .remedy = "the tokenizer does not belong to this model"});
    }
  }
  const bool graph = c10::GradMode::is_enabled() && is_trained();
  DecoderPass::Settings settings{.operations = &operations(), .gate = gate_, .graph = graph};
  settings.seat = seat_;
  settings.checkpointed = graph && checkpointing_;
  settings.checkpoints = checkpoints_;
  settings.load = taps.load;
  settings.replay = taps.replay;
  settings.block = taps.block;
  if (graph && taps.dropout && adapter_ && adapter_->config.dropout > 0)
    settings.dropout = {settings.operations, adapter_->seed, taps.draw};
  const auto pass = std::make_shared<DecoderPass>(
      config(), weights_, frequencies(taps.shared != nullptr ? *taps.shared->whole : tree), std::move(settings));
  std::vector<Tensor> values;
  std::vector<std::int64_t> shape;  // of the last, before it is spread
  {
    const c10::NoGradGuard no_grad;
    values = taps.shared != nullptr ? pass->forward(*taps.shared, taps.depths, taps.rows)
                                    : pass->forward(tree, taps.depths, taps.rows);
    shape.assign(values.back().sizes().begin(), values.back().sizes().end());
    if (taps.spread.defined()) values.back() = operations().rows(values.back(), taps.spread);
  }
  if (!graph) return values;
  const bool one = values.size() == 1;
  Tensor joined = one ? values.front() : tensor::stack(values);
  const Tensor anchor = tensor::zeros({1}, joined.options()).requires_grad_(true);
  joined = tensor::attach_gradient(joined, {anchor}, [pass, shape, one, spread = taps.spread](const Tensor& grad) {
    const c10::NoGradGuard no_grad;
    std::vector<Tensor> gradients;
    for (std::int64_t i = 0; i < (one ? 1 : grad.size(0)); ++i)
      gradients.push_back((one ? grad : grad.select(0, i)).contiguous());
    if (spread.defined()) gradients.back() = grad.new_zeros(shape).index_add_(0, spread, gradients.back());
    pass->backward(gradients);
    return std::vector<Tensor>{tensor::zeros({1}, grad.options())};
  });
  if (one) return {joined};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = joined.select(0, static_cast<std::int64_t>(i));
  return values;
}

RLALGO_INLINE std::vector<Tensor> Decoder::frequencies(const TokenTree& tree) const {
  std::int64_t length = 0;
  for (const std::int64_t position : tree.positions) length = std::max(length, position + 1);
  for (const std::int64_t source : tree.source)
    length = std::max(length, tree.positions[static_cast<std::size_t>(source)] + 2);
  std::vector<Tensor> out = frequencies_;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const RopeConfig& rope = config().ropes[i];
    const bool by_length = rope.kind == RopeConfig::Kind::dynamic || rope.kind == RopeConfig::Kind::longrope;
    if (by_length && static_cast<double>(length) > rope.original_max_position_embeddings)
      out[i] = rope_frequencies(rope, config().head_dim, length);
  }
  return out;
}

}  // namespace rlalgo::model
