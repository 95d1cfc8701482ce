// What stands around every layer of a decoder's passes: weights that lie elsewhere (in shards, on another device) are
// there between acquire and release, and gradients are taken away as soon as they are whole.
//
// Order of calls, for a pass over layers 0 … n−1:
//   forward    begin acquire(0) release(0) … acquire(n−1) release(n−1)
//   backward   begin acquire(n−1) release(n−1) gradient_ready(n−1) … acquire(0) release(0) gradient_ready(0) end
// With gradient checkpointing a layer is computed again and differentiated under one acquire.
//
// A layer's weights, adapter included, are read between its acquire and release only. The embedding, the final norm and the
// head are needed at both ends of a pass: from begin on, for what the pass yields, and to the end of the backward pass that
// belongs to it, if one follows. At other times the memory of the weights may be anything; the tensors must stay the same
// objects, in shape, dtype and requires_grad.
// A decoder without a gate pays one comparison per layer.
#pragma once

#include <cstdint>

namespace rlalgo::model {

class ExpertExchange;
struct DecoderWeights;

class LayerGate {
 public:
  enum class Phase { forward, backward };
  struct Visit {
    std::int64_t layer = 0;
    Phase phase = Phase::forward;
    std::int64_t next = -1;  // the layer that this pass acquires next, which can be fetched ahead; −1: none
    friend bool operator==(const Visit&, const Visit&) = default;
  };

  struct Pass {
    Phase phase = Phase::forward;
    std::int64_t layers = 0;  // those that it runs, from the first on
    bool graph = false;       // a backward pass may follow, or this is it
    bool recomputed = false;  // …, which computes every layer again
    std::int64_t seat = 0;    // of the weights that it computes with: seat()
    std::int64_t number = 0;  // of a backward pass: number() of its forward pass
    friend bool operator==(const Pass&, const Pass&) = default;
  };

  LayerGate() = default;
  LayerGate(const LayerGate&) = delete;
  LayerGate& operator=(const LayerGate&) = delete;
  virtual ~LayerGate() = default;

  // Returns when what lies outside of the layers can be read.
  virtual void begin(const Pass& /*pass*/) {}
  // A backward pass has added its share to all gradients, those outside of the layers included.
  virtual void end(const Pass& /*pass*/) {}
  // Returns when the layer's weights can be read. May raise: the pass ends with its error.
  virtual void acquire(const Visit& visit) = 0;
  // Also called while an error leaves the layer.
  virtual void release(const Visit& visit) noexcept = 0;
  // This pass has added its share to the gradients of all weights of the layer, trained or not, and adds no more.
  virtual void gradient_ready(std::int64_t layer) = 0;

  // Which of the decoders over one set of weights has these: with an adapter, without it, with a copy of it.
  [[nodiscard]] virtual std::int64_t seat(const DecoderWeights& /*weights*/) { return 0; }
  // Of the pass that was begun last.
  [[nodiscard]] virtual std::int64_t number() const { return 0; }
  // Null: all experts are here.
  [[nodiscard]] virtual ExpertExchange* experts() { return nullptr; }
};

// Acquires for a scope. `gate` may be null.
class GateScope {
 public:
  GateScope(LayerGate* gate, const LayerGate::Visit& visit) : gate_(gate), visit_(visit) {
    if (gate_ != nullptr) gate_->acquire(visit_);
  }
  GateScope(const GateScope&) = delete;
  GateScope& operator=(const GateScope&) = delete;
  ~GateScope() {
    if (gate_ != nullptr) gate_->release(visit_);
  }

 private:
  LayerGate* gate_;
  LayerGate::Visit visit_;
};

}  // namespace rlalgo::model
