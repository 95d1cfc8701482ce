// What the trainer needs of a model: scores for the targets of a token tree, and parameters to update.
//
// The decoder of this room is one implementation; a bandit with a table of logits is another (examples/01_bandit).
// Called once per micro-batch, so a virtual call costs nothing that can be measured.
// Errors: [rlalgo.model.33] features are asked of a model that has none; [.35] the tokens of a batch are to be shared by ranks,
// and the model cannot do that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/context_sharing.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

struct Parameter {
  std::string name{};
  Tensor value{};            // leaf; requires_grad when it is trained
  bool weight_decay = true;  // false for norms and biases
};

struct ScoreOptions {
  double temperature = 1.0;       // logits are divided by it before the log-softmax
  bool entropy = false;           // also return the entropy of each predicting distribution
  bool entropy_gradient = false;  // … with graph
  std::uint64_t draw = 0;         // names this pass in the run: random parts of the model (dropout) depend on it
  // Of models with experts, where not 0: also return how evenly these are used (router_load.hpp), and add `balance_weight`
  // times it to whatever is differentiated with the log-probs.
  double balance_weight = 0.0;
  // Numbers that metrics and weights of preference losses read, where the model can compute them.
  bool token_statistics = false;  // mean_logit and greedy
  bool collision = false;
  // Not sent yet, or null: what the pass needs of the host may be added to it, if it is for the device of the pass, which then sends it.
  tensor::HostBlock* block = nullptr;
};

struct Scores {
  Tensor log_prob{};  // [N] nats, row after row as in TokenTree::target
  Tensor entropy{};   // [N] nats, undefined unless asked for
  // Without graph, undefined unless asked for:
  Tensor mean_logit{};          // [N] mean over the vocabulary of the logits before the temperature
  Tensor greedy{};              // [N] 1 = the target has the highest logit
  Tensor collision{};           // [N] log Σ_v p_v²
  Tensor balance{};             // []
  Tensor replay_mismatch = {};  // [] where the tree says which experts tokens pass (router_replay.hpp)
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Differentiable unless gradients are disabled by the caller.
  virtual Scores score(const TokenTree& tree, const ScoreOptions& options) = 0;
  // Trained parameters, in a fixed order that checkpoints rely on.
  virtual std::vector<Parameter> parameters() = 0;
  // Floating-point operations of a typical matrix product in a pass over so many tokens, by which the number of threads
  // is chosen (tensor/threads.hpp); 0 = not known.
  [[nodiscard]] virtual double product_flops(std::int64_t /*tokens*/) const { return 0.0; }
  // Floating-point operations of the forward and the backward pass over a tree (training_flops.hpp); 0 = not known.
  [[nodiscard]] virtual double training_flops(const TokenTree& /*tree*/) const { return 0.0; }
  // From now on the ranks of a ring score together: all of them the same trees, each a share of their tokens.
  virtual void share_context(ContextSharing /*sharing*/) {
    core::raise("model", 35,
                {.what = "this model cannot share the tokens of a batch with other ranks",
                 .remedy = "use a decoder, or a context_parallel_size of 1"});
  }
  // Stands around the layers of every pass from now on, in the place of gate(); null: none. Whether this model has layers.
  virtual bool set_gate(std::shared_ptr<LayerGate> /*gate*/) { return false; }
  [[nodiscard]] virtual std::shared_ptr<LayerGate> gate() const { return nullptr; }
  // Hidden states of all tokens at the chosen layers, [T, H] each, in the order of `layers` (one may occur twice).
  // Layers are numbered as transformers' `hidden_states`: 0 is the embedding's output, i that of layer i counted from
  // 1, and the number of layers, the last, is taken after the final norm. Layers above the highest are not run, nor is
  // the head. Differentiable unless gradients are disabled by the caller; without dropout.
  virtual std::vector<Tensor> features(const TokenTree& /*tree*/, std::span<const std::int64_t> /*layers*/) {
    core::raise("model", 33,
                {.what = "this model has no layers whose hidden states could serve as features",
                 .remedy = "use a decoder, or override Policy::features"});
  }
};

}  // namespace rlalgo::model
