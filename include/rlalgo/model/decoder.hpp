// A decoder-only language model (Llama, Qwen2, Qwen3) that scores token trees.
//
//   score:  hidden states at the target sources → log-prob head; never [N, V] logits
//
// Forward and backward are written by hand (decoder_layer.hpp): one node of the autograd graph per call, and weight
// gradients are added straight to `parameter.grad()`. A second backward pass through the same call is an error.
// In the last layer everything after the attention runs only for the rows that are asked for.
//
// Shapes: ids [T]; hidden states [T, H] after the final norm; logits [T, V]. Weights and activations have one dtype.
// Errors: [rlalgo.model.17] token id outside the vocabulary · 18 backward twice through one call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>

namespace rlalgo::model {

class Decoder : public Policy {
 public:
  // `hf` keeps the original config.json for saving; the weights must fit it.
  Decoder(HfConfig hf, DecoderWeights weights)
      : hf_(std::move(hf)),
        weights_(std::move(weights)),
        frequencies_(rope_frequencies(config().rope, config().head_dim)) {
    if (config().tied_embeddings) weights_.lm_head = weights_.embedding;
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
    Tensor hidden = run(tree, static_cast<std::int64_t>(rows.size()) == tree.tokens() ? Tensor() : index_tensor(rows));
    if (!in_order) hidden = hidden.index_select(0, index_tensor(compact));
    const tensor::LogProbs out = tensor::log_prob_head(hidden, weights_.lm_head, index_tensor(tree.target),
                                                       {.temperature = options.temperature,
                                                        .entropy = options.entropy,
                                                        .entropy_gradient = options.entropy_gradient,
                                                        .greedy = options.token_statistics});
    Scores scores{out.log_prob, out.entropy, {}, out.greedy, {}};
    add_statistics(hidden.detach(), tree, options, scores);
    return scores;
  }

  // [T, H] after the final norm, with graph unless gradients are disabled.
  [[nodiscard]] Tensor hidden_states(const TokenTree& tree) { return run(tree, {}); }

  // [T, V], materialised and without graph: for tests and inspection.
  [[nodiscard]] Tensor logits(const TokenTree& tree) {
    const c10::NoGradGuard no_grad;
    return at::mm(run(tree, {}), weights_.lm_head.t());
  }

  // Trained parameters sorted by name, the order of the file on disk. No weight decay on norms and biases.
  std::vector<Parameter> parameters() override {
    std::vector<Parameter> out;
    visit_weights(config(), weights_, [&](const std::string& name, const Tensor& value, const auto&, WeightRole role) {
      if (value.requires_grad()) out.push_back({name, value, role == WeightRole::matrix});
    });
    std::sort(out.begin(), out.end(), [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
    return out;
  }

  // Every tensor on disk, trained or not, sorted by name.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_tensors() const {
    std::vector<std::pair<std::string, Tensor>> out;
    visit_weights(config(), weights_, [&](const std::string& name, const Tensor& value, const auto&, WeightRole) {
      out.emplace_back(name, value);
    });
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  void set_trained(bool trained) {
    visit_weights(config(), weights_,
                  [&](const std::string&, Tensor& value, const auto&, WeightRole) { value.requires_grad_(trained); });
  }

  // An independent copy of the weights as they are now, not trained: the reference model.
  [[nodiscard]] std::unique_ptr<Decoder> frozen_copy() const {
    const c10::NoGradGuard no_grad;
    DecoderWeights copy = weights_;
    visit_weights(config(), copy,
                  [](const std::string&, Tensor& value, const auto&, WeightRole) { value = value.detach().clone(); });
    return std::make_unique<Decoder>(hf_, std::move(copy));
  }

 private:
  // The mean logit is a dot product with the mean row of the head. log Σ p² is 2·log p − log p', p' being the
  // distribution at half the temperature: both are log-probs of the same targets.
  void add_statistics(const Tensor& hidden, const TokenTree& tree, const ScoreOptions& options, Scores& scores) {
    const c10::NoGradGuard no_grad;
    if (options.token_statistics) scores.mean_logit = hidden.mv(weights_.lm_head.detach().mean(0));
    if (options.collision)
      scores.collision = scores.log_prob.detach().mul(2.0).sub(
          tensor::log_prob_head(hidden, weights_.lm_head, index_tensor(tree.target),
                                {.temperature = options.temperature / 2.0})
              .log_prob);
  }

  // Holds handles to the weights, so that a backward pass may outlive the decoder.
  struct Tape {
    DecoderConfig config;
    DecoderWeights weights;
    std::vector<std::int64_t> ids;
    AttentionPlan plan;
    RopeTable rope;
    std::vector<LayerTape> layers;
    Tensor last, scale;  // input of the final norm [S, H], its scale [S]
    bool used = false;
  };

  [[nodiscard]] static Tensor index_tensor(const std::vector<std::int64_t>& values) {
    Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kLong));
    std::copy(values.begin(), values.end(), out.mutable_data_ptr<std::int64_t>());
    return out;
  }

  [[nodiscard]] bool is_trained() const {
    bool trained = false;
    visit_weights(config(), weights_, [&](const std::string&, const Tensor& value, const auto&, WeightRole) {
      trained = trained || value.requires_grad();
    });
    return trained;
  }

  // Hidden states after the final norm of all tokens, or of `rows` [S].
  [[nodiscard]] Tensor run(const TokenTree& tree, const Tensor& rows) {
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
      value = forward(tree, rows, *tape, graph);
    }
    if (!graph) return value;
    const Tensor anchor = at::zeros({1}, value.options()).requires_grad_(true);
    return tensor::attach_gradient(value, {anchor}, [tape](const Tensor& grad) {
      backward(*tape, grad);
      return std::vector<Tensor>{at::zeros({1}, grad.options())};
    });
  }

  [[nodiscard]] Tensor forward(const TokenTree& tree, const Tensor& rows, Tape& tape, bool keep) {
    tape.plan = plan_attention(tree);
    tape.rope = rope_table(frequencies_, tree.positions);
    const LayerContext context{config(), tape.plan, tape.rope};
    Tensor x = weights_.embedding.index_select(0, index_tensor(tree.ids));
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      LayerTape* layer = keep ? &tape.layers.emplace_back() : nullptr;
      x = layer_forward(context, weights_.layers[i], x, i + 1 == weights_.layers.size() ? rows : Tensor(), layer);
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
    const LayerContext context{tape.config, tape.plan, tape.rope};
    Tensor grad = rms_norm_backward(grad_out.contiguous(), tape.last, tape.weights.final_norm, tape.scale, {},
                                    gradient_buffer(tape.weights.final_norm));
    for (std::size_t i = tape.weights.layers.size(); i-- > 0;) {
      grad = layer_backward(context, tape.weights.layers[i], std::move(tape.layers.back()), grad);
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
};

}  // namespace rlalgo::model
