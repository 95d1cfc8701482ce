// A decoder-only language model (Llama, Mistral, Qwen2, Qwen3, SmolLM3) that scores token trees.
//
//   score:  hidden states at the target sources → log-prob head; never [N, V] logits
//
// Forward and backward are written by hand (decoder_pass.hpp): one node of the autograd graph per call, and weight
// gradients are added straight to `parameter.grad()`. A second backward pass through the same call is an error.
// What touches memory lies behind model::Operations, chosen by the device of the weights; nothing else here does.
//
// Shapes: ids [T]; hidden states [T, H] after the final norm; logits [T, V]. Weights and activations have one dtype.
// Errors: [rlalgo.model.17] token id outside the vocabulary; [.23] (usage) unfrozen_parameters names no weight; [.32]
// features of a layer that the model has not.
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

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_pass.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>

namespace rlalgo::model {

class Decoder : public Policy {
 public:
  // `hf` keeps the original config.json for saving; the weights must fit it.
  Decoder(HfConfig hf, DecoderWeights weights)
      : hf_(std::move(hf)),
        weights_(std::move(weights)),
        frequencies_(rope_frequencies(config().rope, config().head_dim)) {
    if (config().tied_embeddings && !weights_.lm_head.defined()) weights_.lm_head = weights_.embedding;
  }

  [[nodiscard]] const DecoderConfig& config() const { return hf_.decoder; }
  [[nodiscard]] const HfConfig& hf_config() const { return hf_; }
  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
  [[nodiscard]] at::ScalarType dtype() const { return weights_.embedding.scalar_type(); }
  [[nodiscard]] at::Device device() const { return weights_.embedding.device(); }
  [[nodiscard]] const Tensor& rope_frequencies_table() const { return frequencies_; }

  Scores score(const TokenTree& tree, const ScoreOptions& options) override {
    // Rows whose hidden state is needed, each once: children of one prompt share its last token.
    std::vector<std::int64_t> rows = tree.source;
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::vector<std::int64_t> compact(tree.source.size());
    for (std::size_t n = 0; n < compact.size(); ++n)
      compact[n] = std::lower_bound(rows.begin(), rows.end(), tree.source[n]) - rows.begin();
    const bool all = static_cast<std::int64_t>(rows.size()) == tree.tokens(), in_order = rows == tree.source;
    const Tensor hidden = run(tree, {.depths = {config().layers},
                                     .rows = all ? Tensor() : index_tensor(rows, device()),
                                     .spread = in_order ? Tensor() : index_tensor(compact, device()),
                                     .draw = options.draw})
                              .front();
    const tensor::LogProbs out = tensor::log_prob_head(hidden, head(), index_tensor(tree.target, at::kCPU),
                                                       {.temperature = options.temperature,
                                                        .entropy = options.entropy,
                                                        .entropy_gradient = options.entropy_gradient,
                                                        .greedy = options.token_statistics});
    Scores scores{out.log_prob, out.entropy, {}, out.greedy, {}};
    add_statistics(hidden.detach(), tree, options, scores);
    return scores;
  }

  std::vector<Tensor> features(const TokenTree& tree, std::span<const std::int64_t> layers) override {
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

  // [T, H] after the final norm, with graph unless gradients are disabled.
  [[nodiscard]] Tensor hidden_states(const TokenTree& tree) { return run(tree, {.depths = {config().layers}}).front(); }

  // [T, V], materialised and without graph: for tests and inspection.
  [[nodiscard]] Tensor logits(const TokenTree& tree) {
    const c10::NoGradGuard no_grad;
    return tensor::mm(hidden_states(tree), head().t());
  }

  // Those of the weights' device, unless others were chosen.
  [[nodiscard]] const Operations& operations() const {
    return operations_ != nullptr ? *operations_ : operations_for(device());
  }
  // `operations` must outlive the decoder, and every graph made with it.
  void use_operations(const Operations& operations) { operations_ = &operations; }

  // Stands around the layers of every pass from now on; null: none.
  void set_gate(std::shared_ptr<LayerGate> gate) { gate_ = std::move(gate); }

  // Trained parameters sorted by name, the order of the file on disk. No weight decay on norms and biases. With an
  // adapter they have the names of its file.
  std::vector<Parameter> parameters() override {
    const std::string prefix = adapter_ ? adapter_prefix : "";
    std::vector<Parameter> out;
    visit_all([&](const std::string& name, const Tensor& value, WeightRole role) {
      if (value.requires_grad()) out.push_back({prefix + name, value, role == WeightRole::matrix});
    });
    std::sort(out.begin(), out.end(), [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
    return out;
  }

  // What an adapter is, and the weights without it: the same tensors, but for modules that it replaces.
  struct Adapter {
    LoraConfig config;
    bool continued = false;  // read from files: the reference of a run is the adapter as it was then
    std::uint64_t seed = 0;  // of dropout
    DecoderWeights base;
  };
  [[nodiscard]] const Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }

  // Computes with `weights` from now on; see lora.hpp. The object that weights() names stays the same.
  void adapt(Adapter adapter, DecoderWeights weights) {
    weights_ = std::move(weights);
    adapter_ = std::move(adapter);
  }

  // A decoder over the same tensors with the adapter switched off: nothing is copied.
  [[nodiscard]] std::unique_ptr<Decoder> without_adapter() const {
    return beside(detached(adapter_ ? adapter_->base : weights_));
  }

  // The model as it is before training, not trained itself. Without an adapter: a copy. With a new one: the same
  // tensors, adapter off. With one that already changes the model (continued, or PiSSA's): a copy of the adapter alone.
  [[nodiscard]] std::unique_ptr<Decoder> reference() const {
    if (!adapter_) return frozen_copy();
    if (!adapter_->continued && adapter_->config.init != LoraInit::pissa) return without_adapter();
    const c10::NoGradGuard no_grad;
    DecoderWeights copy = detached(weights_);
    visit_loras(copy, [](const std::string&, Lora& lora, const Tensor&) {
      for (Tensor* value : {&lora.a, &lora.b, &lora.magnitude})
        if (value->defined()) *value = value->clone();
    });
    visit_weights(untied(), copy, [&](const std::string& name, Tensor& value, const auto&, WeightRole) {
      if (is_saved_module(adapter_->config, name.substr(0, name.rfind('.')))) value = value.clone();
    });
    return beside(std::move(copy));
  }

  // visit(name, tensor) for the tensors of the adapter's file, without its prefix.
  template <class Visit>
  void visit_adapter(Visit&& visit) const {
    visit_all([&](const std::string& name, const Tensor& value, WeightRole) {
      if (name.find(".lora_") != std::string::npos ||
          is_saved_module(adapter_->config, name.substr(0, name.rfind('.'))))
        visit(name, value);
    });
  }

  static constexpr const char* adapter_prefix = "base_model.model.";

  // Every tensor on disk, trained or not, sorted by name.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_tensors() const {
    std::vector<std::pair<std::string, Tensor>> out;
    visit_weights(config(), weights_, [&](const std::string& name, const Tensor& value, const auto&, WeightRole) {
      out.emplace_back(name, value);
    });
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  // Trades time for memory in passes with gradient.
  void set_checkpointing(bool on) { checkpointing_ = on; }

  void set_trained(bool trained) {
    visit_weights(config(), weights_,
                  [&](const std::string&, Tensor& value, const auto&, WeightRole) { value.requires_grad_(trained); });
  }

  // Trains the weights whose names begin with a match of one of the patterns, and no others. As in axolotl a dot in a
  // pattern is a dot.
  void train_only(const std::vector<std::string>& patterns) {
    set_trained(false);
    for (const std::string& text : patterns) {
      std::string escaped;
      for (const char c : text) escaped += c == '.' ? std::string("\\.") : std::string(1, c);
      const detail::ModulePattern pattern(escaped, false);
      bool found = false;
      visit_weights(config(), weights_, [&](const std::string& name, Tensor& value, const auto&, WeightRole) {
        if (!pattern.matches(name)) return;
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

  // An independent copy of the weights as they are now, not trained: the reference model.
  [[nodiscard]] std::unique_ptr<Decoder> frozen_copy() const {
    const c10::NoGradGuard no_grad;
    DecoderWeights copy = weights_;
    visit_weights(config(), copy,
                  [](const std::string&, Tensor& value, const auto&, WeightRole) { value = value.detach().clone(); });
    if (config().tied_embeddings) copy.lm_head = copy.embedding;
    std::unique_ptr<Decoder> out = beside(std::move(copy));
    out->set_gate(nullptr);
    return out;
  }

 private:
  // The mean logit is a dot product with the mean row of the head. log Σ p² is 2·log p − log p', p' being the
  // distribution at half the temperature: both are log-probs of the same targets.
  void add_statistics(const Tensor& hidden, const TokenTree& tree, const ScoreOptions& options, Scores& scores) {
    const c10::NoGradGuard no_grad;
    if (options.token_statistics) scores.mean_logit = hidden.mv(head().detach().mean(0));
    if (options.collision)
      scores.collision = scores.log_prob.detach().mul(2.0).sub(
          tensor::log_prob_head(hidden, head(), index_tensor(tree.target, at::kCPU),
                                {.temperature = options.temperature / 2.0})
              .log_prob);
  }

  [[nodiscard]] static Tensor index_tensor(const std::vector<std::int64_t>& values, at::Device device) {
    return tensor::from_values(values, at::TensorOptions().dtype(at::kLong).device(device));
  }

  // The configuration with lm_head as a tensor of its own, to be visited as well.
  [[nodiscard]] DecoderConfig untied() const {
    DecoderConfig out = config();
    out.tied_embeddings = out.tied_embeddings && same_memory(weights_.lm_head, weights_.embedding);
    return out;
  }

  // visit(name, tensor, role) for every tensor, those of the adapter included.
  template <class Visit>
  void visit_all(Visit&& visit) const {
    visit_weights(untied(), weights_, [&](const std::string& name, const Tensor& value, const auto&, WeightRole role) {
      visit(name, value, role);
    });
    visit_loras(weights_, [&](const std::string& path, const Lora& lora, const Tensor&) {
      if (!lora.defined()) return;
      visit(path + ".lora_A.weight", lora.a, WeightRole::matrix);
      visit(path + ".lora_B.weight", lora.b, WeightRole::matrix);
      if (lora.magnitude.defined()) visit(path + ".lora_magnitude_vector", lora.magnitude, WeightRole::matrix);
    });
  }

  [[nodiscard]] bool is_trained() const {
    bool trained = false;
    visit_all([&](const std::string&, const Tensor& value, WeightRole) { trained = trained || value.requires_grad(); });
    return trained;
  }

  [[nodiscard]] static bool same_memory(const Tensor& a, const Tensor& b) {
    return a.is_alias_of(b) && a.storage_offset() == b.storage_offset();
  }

  // A decoder over tensors of this one.
  [[nodiscard]] std::unique_ptr<Decoder> beside(DecoderWeights weights) const {
    auto out = std::make_unique<Decoder>(hf_, std::move(weights));
    out->operations_ = operations_;
    out->gate_ = gate_;
    return out;
  }

  // The same memory in tensors that are not trained.
  [[nodiscard]] DecoderWeights detached(DecoderWeights weights) const {
    const bool tied = same_memory(weights.lm_head, weights.embedding);
    DecoderConfig c = config();
    c.tied_embeddings = false;
    visit_weights(c, weights,
                  [](const std::string&, Tensor& value, const auto&, WeightRole) { value = value.detach(); });
    visit_loras(weights, [](const std::string&, Lora& lora, const Tensor&) {
      for (Tensor* value : {&lora.a, &lora.b, &lora.magnitude})
        if (value->defined()) *value = value->detach();
    });
    if (tied) weights.lm_head = weights.embedding;
    return weights;
  }

  // The output embedding, adapter included.
  [[nodiscard]] Tensor head() const {
    const Lora& lora = weights_.lm_head_lora;
    if (!lora.defined()) return weights_.lm_head;
    const Tensor& w = weights_.lm_head;
    Tensor out = tensor::addmm(w.to(lora.a.scalar_type()), lora.b, lora.a, 1.0, lora.scale);
    if (lora.magnitude.defined()) out = out.mul(lora.magnitude.div(adapted_norm(w, lora).detach()).unsqueeze(1));
    return out.to(w.scalar_type());
  }

  // What is wanted of a pass (decoder_pass.hpp).
  struct Taps {
    std::vector<std::int64_t> depths;
    Tensor rows = {};    // [S]: only these of the last depth
    Tensor spread = {};  // [N]: then row spread_n of them
    std::uint64_t draw = 0;
    bool dropout = true;  // while training
  };

  // Hidden states at each depth, [T, H] or as `rows` and `spread` say.
  [[nodiscard]] std::vector<Tensor> run(const TokenTree& tree, const Taps& taps) {
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
    settings.checkpointed = graph && checkpointing_;
    if (graph && taps.dropout && adapter_ && adapter_->config.dropout > 0)
      settings.dropout = {settings.operations, adapter_->seed, taps.draw};
    const auto pass = std::make_shared<DecoderPass>(config(), weights_, frequencies(tree), std::move(settings));
    std::vector<Tensor> values;
    std::vector<std::int64_t> shape;  // of the last, before it is spread
    {
      const c10::NoGradGuard no_grad;
      values = pass->forward(tree, taps.depths, taps.rows);
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

  // The rotation of a pass: that of its longest sequence. The last token of a row is not laid out, but it is part of
  // the sequence.
  [[nodiscard]] Tensor frequencies(const TokenTree& tree) const {
    std::int64_t length = 0;
    for (const std::int64_t position : tree.positions) length = std::max(length, position + 1);
    for (const std::int64_t source : tree.source)
      length = std::max(length, tree.positions[static_cast<std::size_t>(source)] + 2);
    const RopeConfig& rope = config().rope;
    const bool stretched =
        rope.kind == RopeConfig::Kind::dynamic && static_cast<double>(length) > rope.original_max_position_embeddings;
    return stretched ? rope_frequencies(rope, config().head_dim, length) : frequencies_;
  }

  HfConfig hf_;
  DecoderWeights weights_;
  Tensor frequencies_;  // [D/2] float32
  std::optional<Adapter> adapter_;
  bool checkpointing_ = false;
  const Operations* operations_ = nullptr;  // null: those of the device
  std::shared_ptr<LayerGate> gate_;
};

}  // namespace rlalgo::model
