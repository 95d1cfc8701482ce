// A decoder-only language model (of a family in detail/families.hpp) that scores token trees.
//
//   score:  hidden states at the target sources → log-prob head; never [N, V] logits
//
// Forward and backward are written by hand (decoder_pass.hpp): one node of the autograd graph per call, and weight
// gradients are added straight to `parameter.grad()`. A second backward pass through the same call is an error.
// What touches memory lies behind model::Operations, chosen by the device of the weights; nothing else here does.
//
// Shapes: ids [T]; hidden states [T, H] after the final norm; logits [T, V]. Weights and activations have one dtype.
// Errors: [rlalgo.model.17] token id outside the vocabulary; [.23] (usage) unfrozen_parameters names no weight; [.32]
// features of a layer that the model has not; [.39] (usage) the use of experts is to be balanced, and ranks share the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/checkpoint_store.hpp>
#include <rlalgo/model/context_sharing.hpp>
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
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/log_prob_head.hpp>

namespace rlalgo::model {

class Decoder : public Policy {
 public:
  // `hf` keeps the original config.json for saving; the weights must fit it.
  Decoder(HfConfig hf, DecoderWeights weights);

  [[nodiscard]] const DecoderConfig& config() const { return hf_.decoder; }
  [[nodiscard]] const HfConfig& hf_config() const { return hf_; }
  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
  [[nodiscard]] at::ScalarType dtype() const { return weights_.embedding.scalar_type(); }
  [[nodiscard]] at::Device device() const { return weights_.embedding.device(); }
  // Of each rotation of the configuration.
  [[nodiscard]] const std::vector<Tensor>& rope_frequencies_table() const { return frequencies_; }

  RLALGO_INLINE Scores score(const TokenTree& tree, const ScoreOptions& options) override;

  // The mean over the products of a layer.
  [[nodiscard]] RLALGO_INLINE double product_flops(std::int64_t tokens) const override;
  [[nodiscard]] RLALGO_INLINE double training_flops(const TokenTree& tree) const override;

  RLALGO_INLINE std::vector<Tensor> features(const TokenTree& tree, std::span<const std::int64_t> layers) override;

  // [T, H] after the final norm, with graph unless gradients are disabled.
  [[nodiscard]] Tensor hidden_states(const TokenTree& tree) { return run(tree, {.depths = {config().layers}}).front(); }

  // [T, V], materialised and without graph: for tests and inspection.
  [[nodiscard]] Tensor logits(const TokenTree& tree);

  // Those of the weights' device, unless others were chosen.
  [[nodiscard]] const Operations& operations() const;
  // `operations` must outlive the decoder, and every graph made with it.
  void use_operations(const Operations& operations) { operations_ = &operations; }

  bool set_gate(std::shared_ptr<LayerGate> gate) override {
    gate_ = std::move(gate);
    seat_ = gate_ != nullptr ? gate_->seat(weights_) : 0;
    return true;
  }
  [[nodiscard]] std::shared_ptr<LayerGate> gate() const override { return gate_; }

  // From now on score() runs this rank's share of the tokens. features() and copies of this decoder share nothing.
  RLALGO_INLINE void share_context(ContextSharing sharing) override;

  // Trained parameters sorted by name, the order of the file on disk. No weight decay on norms and biases. With an
  // adapter they have the names of its file.
  RLALGO_INLINE std::vector<Parameter> parameters() override;

  // What an adapter is, and the weights without it: the same tensors, but for modules that it replaces.
  struct Adapter {
    LoraConfig config;
    bool continued = false;  // read from files: the reference of a run is the adapter as it was then
    std::uint64_t seed = 0;  // of dropout
    DecoderWeights base;
  };
  [[nodiscard]] const Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }

  // Computes with `weights` from now on; see lora.hpp. The object that weights() names stays the same.
  void adapt(Adapter adapter, DecoderWeights weights);

  // Other embeddings than the base's files have, of any vocabulary: config() says it then, and the adapter's file carries
  // them. Before an adapter is attached.
  void replace_embeddings(Tensor embedding, Tensor lm_head);
  [[nodiscard]] bool embeddings_replaced() const { return embeddings_replaced_; }

  // A decoder over the same tensors with the adapter switched off: nothing is copied.
  [[nodiscard]] std::unique_ptr<Decoder> without_adapter() const;

  // The model as it is before training, not trained itself. Without an adapter: a copy. With a new one: the same
  // tensors, adapter off. With one that already changes the model (continued, or PiSSA's): a copy of the adapter alone.
  [[nodiscard]] std::unique_ptr<Decoder> reference() const;

  // visit(name, tensor) for the tensors of the adapter's file, without its prefix.
  template <class Visit>
  void visit_adapter(Visit&& visit) const {
    visit_all([&](const std::string& name, const Tensor& value, WeightRole) {
      const std::string path = name.substr(0, name.rfind('.'));
      if (name.find(".lora_") != std::string::npos || is_saved_module(adapter_->config, path)) {
        visit(name, value);
      } else if (embeddings_replaced_ && (path == "model.embed_tokens" || path == "lm_head")) {
        // As PEFT names it below an adapter.
        visit(path == "lm_head" && weights_.lm_head_lora.defined() ? path + ".base_layer.weight" : name, value);
      }
    });
  }

  static constexpr const char* adapter_prefix = "base_model.model.";

  // Every tensor on disk, trained or not, sorted by name.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_tensors() const;

  // Trades time for memory in passes with gradient.
  void set_checkpointing(bool on, CheckpointPlace place = {}) {
    checkpointing_ = on;
    checkpoints_ = std::move(place);
  }

  void set_trained(bool trained);

  // Trains the weights whose names begin with a match of one of the patterns, and no others. As in axolotl a dot in a
  // pattern is a dot.
  void train_only(const std::vector<std::string>& patterns);

  // An independent copy of the weights as they are now, not trained: the reference model.
  [[nodiscard]] std::unique_ptr<Decoder> frozen_copy() const;

 private:
  // Of all targets of a tree, or of this rank's part.
  [[nodiscard]] Scores score_part(const TokenTree& tree, const ScoreOptions& options, const SharedTree* shared,
                                  const std::shared_ptr<RouterLoad>& load = {});

  // What the head needs of a tree, on the device of the pass.
  struct Targets {
    Tensor ids;                    // [N]
    Tensor inverse_temperature{};  // [N] where temperatures differ between targets and divide the states
  };
  [[nodiscard]] Targets targets_of(const TokenTree& tree, const ScoreOptions& options, tensor::HostBlock& block) const;

  // The mean logit is a dot product with the mean row of the head. log Σ p² is 2·log p − log p', p' being the
  // distribution at half the temperature: both are log-probs of the same targets.
  void add_statistics(const Tensor& hidden, const Targets& targets, const ScoreOptions& options, Scores& scores);

  [[nodiscard]] tensor::LogProbs score_targets(const Tensor& hidden, const TokenTree& tree, const Targets& targets,
                                               const ScoreOptions& options);

  // [N, V] of states [N, H], scaled and capped.
  [[nodiscard]] Tensor logits_of(const Tensor& hidden) const;

  // Mean logit of each row [N], without the logits of all rows at once.
  [[nodiscard]] Tensor mean_logits(const Tensor& hidden) const;
  // score() of the tree with the last token of every row, and how evenly experts are used.
  [[nodiscard]] Scores score_balanced(const TokenTree& tree, const ScoreOptions& options);

  // The configuration with lm_head as a tensor of its own, to be visited as well.
  [[nodiscard]] DecoderConfig untied() const;

  // visit(name, tensor, role) for every tensor, those of the adapter included.
  template <class Visit>
  void visit_all(Visit&& visit) const {
    visit_weights(untied(), weights_, [&](const std::string& name, const Tensor& value, const auto&, WeightRole role) {
      visit(name, value, role);
    });
    visit_loras(config(), weights_, [&](const std::string& path, const Lora& lora, const Tensor&) {
      if (!lora.defined()) return;
      visit(path + ".lora_A.weight", lora.a, WeightRole::matrix);
      visit(path + ".lora_B.weight", lora.b, WeightRole::matrix);
      if (lora.magnitude.defined()) visit(path + ".lora_magnitude_vector", lora.magnitude, WeightRole::matrix);
    });
  }

  [[nodiscard]] bool is_trained() const;

  [[nodiscard]] static bool same_memory(const Tensor& a, const Tensor& b);

  // A decoder of the same configuration over other weights.
  [[nodiscard]] std::unique_ptr<Decoder> with_weights(DecoderWeights weights) const;

  // The same memory in tensors that are not trained.
  [[nodiscard]] DecoderWeights detached(DecoderWeights weights) const;

  // The output embedding, adapter included.
  [[nodiscard]] Tensor head() const;

  // What is wanted of a pass (decoder_pass.hpp).
  struct Taps {
    std::vector<std::int64_t> depths;
    Tensor rows = {};    // [S]: only these of the last depth
    Tensor spread = {};  // [N]: then row spread_n of them
    std::uint64_t draw = 0;
    bool dropout = true;                 // while training
    const SharedTree* shared = nullptr;  // the tree is its part
    std::shared_ptr<RouterLoad> load = {};
    std::shared_ptr<RouterReplay> replay = {};
    tensor::HostBlock* block = nullptr;  // DecoderPass::Settings::block
  };

  // Hidden states at each depth, [T, H] or as `rows` and `spread` say.
  [[nodiscard]] std::vector<Tensor> run(const TokenTree& tree, const Taps& taps);

  // The rotations of a pass: those of its longest sequence. The last token of a row is not laid out, but it is part of
  // the sequence.
  [[nodiscard]] std::vector<Tensor> frequencies(const TokenTree& tree) const;

  HfConfig hf_;
  DecoderWeights weights_;
  std::vector<Tensor> frequencies_;  // of each rotation, [D/2] float32
  std::optional<Adapter> adapter_;
  bool checkpointing_ = false;
  CheckpointPlace checkpoints_;
  bool embeddings_replaced_ = false;
  const Operations* operations_ = nullptr;  // null: those of the device
  std::shared_ptr<LayerGate> gate_;
  std::int64_t seat_ = 0;  // at the gate
  ContextSharing context_;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/decoder_impl.hpp>
#endif
