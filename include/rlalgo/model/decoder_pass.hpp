// One pass over the layers of a decoder: embedding, layers, final norm, forward and backward.
//
// What a pass yields are hidden states of the residual stream, numbered as transformers' `hidden_states`: 0 is the embedding's
// output, i that of layer i (counted from 1) before the next one's norm, and `layers`, the last, is taken after the
// final norm. Layers above the deepest tap are not run.
// With checkpointing a pass keeps the input of every layer only, and the backward pass computes each layer again before
// it differentiates it: the same operations on the same numbers, so the same gradients to the bit. checkpoint_store.hpp says where these
// inputs lie until then.
// Weight gradients are added to `weight.grad()`; every layer is read between acquire and release of the gate.
//
// Shapes: hidden states [T, H]; the last one [S, H] when `rows` [S] are given: in the last layer everything after the attention
// runs only for them. Both functions are called without gradient mode.
// Of a tree whose tokens several ranks share (context_sharing.hpp) T and S are this rank's, and all ranks do the same passes.
// Errors: [rlalgo.model.18] backward twice through one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <rlalgo/model/checkpoint_store.hpp>
#include <rlalgo/model/context_sharing.hpp>
#include <rlalgo/model/decoder_layer.hpp>
#include <rlalgo/model/gated_delta.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/ring_attention.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

class DecoderPass {
 public:
  struct Settings {
    const Operations* operations{};
    std::shared_ptr<LayerGate> gate = {};  // or null
    DropoutDraw dropout = {};
    std::shared_ptr<RouterLoad> load = {};      // or null; then all rows of the last layer are wanted
    std::shared_ptr<RouterReplay> replay = {};  // or null
    bool graph = false;                         // a backward pass follows
    bool checkpointed = false;                  // …, which computes the layers again
    std::int64_t seat = 0;                      // of the weights, at the gate
    CheckpointPlace checkpoints = {};           // where their inputs lie until then
    tensor::HostBlock* block = nullptr;         // of forward(), which adds to it and sends it; null: its own
  };

  // Holds handles to the weights: a backward pass may outlive the decoder. `frequencies`: rope_frequencies() of each rotation.
  DecoderPass(DecoderConfig config, DecoderWeights weights, std::vector<Tensor> frequencies, Settings settings);

  // The hidden states at `depths`: ascending, each once, 0 … layers.
  [[nodiscard]] std::vector<Tensor> forward(const TokenTree& tree, std::vector<std::int64_t> depths,
                                            const Tensor& rows = {});
  // Of this rank's part of a shared tree.
  [[nodiscard]] std::vector<Tensor> forward(const SharedTree& tree, std::vector<std::int64_t> depths,
                                            const Tensor& rows = {});

  // `gradients`: of those hidden states, contiguous, one each.
  void backward(const std::vector<Tensor>& gradients);

 private:
  // `shared`: null, or where `tree` is a part of.
  [[nodiscard]] std::vector<Tensor> run(const TokenTree& tree, const SharedTree* shared, const Tensor& rows);
  // What layers of equal attention share: their window, and scale and cap of scores.
  using AttentionKind = std::tuple<std::int64_t, double, double>;
  // Before a layer of that kind.
  void lay_out(AttentionKind kind, const TokenTree& tree, const SharedTree* shared, tensor::HostBlock& block);
  [[nodiscard]] std::int64_t deepest() const { return depths_.back(); }
  [[nodiscard]] AttentionKind kind(std::int64_t layer) const {
    const LayerSpec& spec = config_.spec(layer);
    return {spec.window, spec.score_scale, spec.score_cap};
  }
  [[nodiscard]] const LayerWeights& layer(std::int64_t i) const { return weights_.layers[static_cast<std::size_t>(i)]; }
  [[nodiscard]] LayerContext context(std::int64_t i) const;

  DecoderConfig config_;
  DecoderWeights weights_;
  std::vector<Tensor> frequencies_;  // of each rotation, [D/2] float32, host
  Settings settings_;
  std::vector<std::int64_t> depths_;
  std::map<AttentionKind, AttentionLayout> layouts_;
  std::optional<DeltaLayout> delta_;              // where a layer has a gated delta rule
  std::map<AttentionKind, RingAttention> rings_;  // the same of a shared tree
  std::vector<std::int64_t> rows_, source_rows_;  // of a shared tree: numbers of this rank's tokens and sources
  Tensor rows_there_, source_rows_there_;         // the same on the device, where dropout needs them
  std::vector<RopeTable> ropes_;
  Tensor ids_;                              // [T]
  std::vector<std::int64_t> first_expert_;  // of each layer, among the experts that a token passes in all of them
  std::vector<LayerTape> tapes_;
  std::optional<CheckpointStore> inputs_;  // of the layers that are computed again
  Tensor last_, scale_;                    // input of the final norm [S, H], its scale [S]
  std::int64_t number_ = 0;                // of the forward pass, at the gate
  bool used_ = false;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/decoder_pass_impl.hpp>
#endif
