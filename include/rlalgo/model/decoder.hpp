// A decoder-only language model (Llama, Mistral, Qwen2, Qwen3, SmolLM3) that scores token trees.
//
//   score:  hidden states at the target sources → log-prob head; never [N, V] logits
//
// Forward and backward are written by hand (decoder_layer.hpp): one node of the autograd graph per call, and weight
// gradients are added straight to `parameter.grad()`. A second backward pass through the same call is an error.
// With checkpointing a pass keeps the input of every layer only, and the backward pass computes each layer again before
// it differentiates it: the same operations on the same numbers, so the same gradients to the bit.
// In the last layer everything after the attention runs only for the rows that are asked for.
//
// Shapes: ids [T]; hidden states [T, H] after the final norm; logits [T, V]. Weights and activations have one dtype.
// Errors: [rlalgo.model.17] token id outside the vocabulary; [.18] backward twice through one call; [.23] (usage)
// unfrozen_parameters names no weight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/lora_config.hpp>
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
  [[nodiscard]] const Tensor& rope_frequencies_table() const { return frequencies_; }

  Scores score(const TokenTree& tree, const ScoreOptions& options) override {
    // Rows whose hidden state is needed, each once: children of one prompt share its last token.
    std::vector<std::int64_t> rows = tree.source;
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::vector<std::int64_t> compact(tree.source.size());
    for (std::size_t n = 0; n < compact.size(); ++n)
      compact[n] = std::lower_bound(rows.begin(), rows.end(), tree.source[n]) - rows.begin();
    const bool in_order = rows == tree.source;
    Tensor hidden = run(tree, static_cast<std::int64_t>(rows.size()) == tree.tokens() ? Tensor() : index_tensor(rows),
                        options.draw);
    if (!in_order) hidden = hidden.index_select(0, index_tensor(compact));
    const tensor::LogProbs out = tensor::log_prob_head(hidden, head(), index_tensor(tree.target),
                                                       {.temperature = options.temperature,
                                                        .entropy = options.entropy,
                                                        .entropy_gradient = options.entropy_gradient,
                                                        .greedy = options.token_statistics});
    Scores scores{out.log_prob, out.entropy, {}, out.greedy, {}};
    add_statistics(hidden.detach(), tree, options, scores);
    return scores;
  }

  // [T, H] after the final norm, with graph unless gradients are disabled.
  [[nodiscard]] Tensor hidden_states(const TokenTree& tree) { return run(tree, {}, 0); }

  // [T, V], materialised and without graph: for tests and inspection.
  [[nodiscard]] Tensor logits(const TokenTree& tree) {
    const c10::NoGradGuard no_grad;
    return tensor::mm(run(tree, {}, 0), head().t());
  }

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
    return std::make_unique<Decoder>(hf_, detached(adapter_ ? adapter_->base : weights_));
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
    return std::make_unique<Decoder>(hf_, std::move(copy));
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
    return std::make_unique<Decoder>(hf_, std::move(copy));
  }

 private:
  // The mean logit is a dot product with the mean row of the head. log Σ p² is 2·log p − log p', p' being the
  // distribution at half the temperature: both are log-probs of the same targets.
  void add_statistics(const Tensor& hidden, const TokenTree& tree, const ScoreOptions& options, Scores& scores) {
    const c10::NoGradGuard no_grad;
    if (options.token_statistics) scores.mean_logit = hidden.mv(head().detach().mean(0));
    if (options.collision)
      scores.collision = scores.log_prob.detach().mul(2.0).sub(
          tensor::log_prob_head(hidden, head(), index_tensor(tree.target), {.temperature = options.temperature / 2.0})
              .log_prob);
  }

  // Holds handles to the weights, so that a backward pass may outlive the decoder.
  struct Tape {
    DecoderConfig config;
    DecoderWeights weights;
    std::vector<std::int64_t> ids;
    std::map<std::int64_t, AttentionPlan> plans;  // by window
    RopeTable rope;
    std::vector<LayerTape> layers;
    bool checkpointed = false;  // of a layer only `input` and `rows` are there
    DropoutDraw dropout;
    Tensor last, scale;  // input of the final norm [S, H], its scale [S]
    bool used = false;
  };

  [[nodiscard]] static Tensor index_tensor(const std::vector<std::int64_t>& values) {
    Tensor out = tensor::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kLong));
    std::copy(values.begin(), values.end(), out.mutable_data_ptr<std::int64_t>());
    return out;
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
    return a.const_data_ptr() == b.const_data_ptr();
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

  // Hidden states after the final norm of all tokens, or of `rows` [S].
  [[nodiscard]] Tensor run(const TokenTree& tree, const Tensor& rows, std::uint64_t draw) {
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
    const auto tape = std::make_shared<Tape>();
    Tensor value;
    {
      const c10::NoGradGuard no_grad;
      tape->dropout = {graph && adapter_ && adapter_->config.dropout > 0, adapter_ ? adapter_->seed : 0, draw};
      value = forward(tree, rows, *tape, graph);
    }
    if (!graph) return value;
    const Tensor anchor = tensor::zeros({1}, value.options()).requires_grad_(true);
    return tensor::attach_gradient(value, {anchor}, [tape](const Tensor& grad) {
      backward(*tape, grad);
      return std::vector<Tensor>{tensor::zeros({1}, grad.options())};
    });
  }

  [[nodiscard]] static LayerContext context(const Tape& tape, const DecoderConfig& config, std::size_t layer) {
    const LayerKind kind = config.layer_kind(layer);
    return {config, tape.plans.at(kind.window), tape.rope, tape.dropout, kind.rotary};
  }

  // The rotation of a pass whose longest sequence has `length` tokens.
  [[nodiscard]] Tensor frequencies(std::int64_t length) const {
    const RopeConfig& rope = config().rope;
    const bool stretched =
        rope.kind == RopeConfig::Kind::dynamic && static_cast<double>(length) > rope.original_max_position_embeddings;
    return stretched ? rope_frequencies(rope, config().head_dim, length) : frequencies_;
  }

  [[nodiscard]] Tensor forward(const TokenTree& tree, const Tensor& rows, Tape& tape, bool keep) {
    std::int64_t length = 0;
    for (const std::int64_t position : tree.positions) length = std::max(length, position + 1);
    // The last token of a row is not laid out, but it is part of the sequence.
    for (const std::int64_t source : tree.source)
      length = std::max(length, tree.positions[static_cast<std::size_t>(source)] + 2);
    tape.rope = rope_table(frequencies(length), tree.positions, config().rope.attention_factor);
    tape.checkpointed = keep && checkpointing_;
    Tensor x = weights_.embedding.index_select(0, index_tensor(tree.ids));
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      const std::int64_t window = config().layer_kind(i).window;
      if (!tape.plans.contains(window)) tape.plans.emplace(window, plan_attention(tree, window));
      LayerTape* layer = keep ? &tape.layers.emplace_back() : nullptr;
      const Tensor wanted = i + 1 == weights_.layers.size() ? rows : Tensor();
      if (tape.checkpointed) {
        layer->input = x;
        layer->rows = wanted;
        layer = nullptr;
      }
      x = layer_forward(context(tape, config(), i), weights_.layers[i], x, wanted, layer);
    }
    const RmsNormOutput normed = rms_norm(x, weights_.final_norm, config().rms_norm_eps);
    if (keep) {
      tape.config = config();
      tape.weights = weights_;
      tape.ids = tree.ids;
      tape.last = x;
      tape.scale = normed.scale;
    }
    return normed.value;
  }

  static void backward(Tape& tape, const Tensor& grad_out) {
    if (std::exchange(tape.used, true)) {
      core::raise("model", 18,
                  {.what = "backward ran twice through one forward pass of the decoder",
                   .remedy = "score the batch again, or add the losses before calling backward"});
    }
    const c10::NoGradGuard no_grad;
    Tensor grad = rms_norm_backward(grad_out.contiguous(), tape.last, tape.weights.final_norm, tape.scale, {},
                                    gradient_buffer(tape.weights.final_norm));
    for (std::size_t i = tape.weights.layers.size(); i-- > 0;) {
      const LayerContext layer = context(tape, tape.config, i);
      if (tape.checkpointed) {
        const Tensor input = tape.layers.back().input, rows = tape.layers.back().rows;
        (void)layer_forward(layer, tape.weights.layers[i], input, rows, &tape.layers.back());
      }
      grad = layer_backward(layer, tape.weights.layers[i], std::move(tape.layers.back()), grad);
      tape.layers.pop_back();
    }
    if (Tensor gradient = gradient_buffer(tape.weights.embedding); gradient.defined()) {
      detail::dispatch_floating(grad.scalar_type(), [&]<class T>(T) {
        const std::int64_t width = tape.config.hidden_size;
        const T* from = grad.const_data_ptr<T>();
        T* to = gradient.mutable_data_ptr<T>();
        for (const std::int64_t id : tape.ids) {
          T* row = to + id * width;
          for (std::int64_t i = 0; i < width; ++i) row[i] = static_cast<T>(row[i] + from[i]);
          from += width;
        }
      });
    }
  }

  HfConfig hf_;
  DecoderWeights weights_;
  Tensor frequencies_;  // [D/2] float32
  std::optional<Adapter> adapter_;
  bool checkpointing_ = false;
};

}  // namespace rlalgo::model
