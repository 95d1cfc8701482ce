// Generates with the trainer's own weights: nothing is copied, unless it is asked for (quantization, pack_weights of decoder_engine.hpp).
//
// The engine reads the weight tensors where they are at every call of generate(), so an optimizer that updates them in
// place between calls needs no synchronisation; `weights` must outlive the engine. With EngineConfig::keep_prefixes the
// owner says weights_changed() after every change, and what a call computed of its prompts serves the next call too:
// the turns of a conversation, the lines of a file.
//
// A request may bring its completion (Request::given): then the same passes say what its tokens' log-probs are.
//
// A completion ends with a stop id (kept), at max_new_tokens, or when prompt and completion reach
// max_position_embeddings (Finish::length), or when the caller cancels (Finish::aborted, what there was is kept).
//
// Errors: [rlalgo.inference.1] a prompt leaves no room for a completion; [.2] an empty prompt; [.3] an id outside the
// vocabulary; [.4] a sampling setting out of range; [.5] logits that are not finite; [.6] a weight tensor that cannot
// be read; [.7] an engine setting out of range; [.10] a request that needs more memory than cache_bytes.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/scheduler.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::inference {

class LocalEngine {
 public:
  using Config = EngineConfig;
  static constexpr WeightSource weights = WeightSource::shared;
  static constexpr GeneratorHooks hooks{.quantizes = true};

  LocalEngine(const model::DecoderConfig& decoder, const model::DecoderWeights& weights, EngineConfig engine = {})
      : engine_(decoder, engine.for_weights(weights)), weights_(weights) {}

  [[nodiscard]] const model::DecoderConfig& decoder_config() const noexcept { return engine_.decoder_config(); }
  [[nodiscard]] bool quantizes() const noexcept { return engine_.config().quantizes(); }

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key, const GenerateHooks& hooks = {}) {
    if (!engine_.config().keep_prefixes) weights_changed();
    if (!view_) view_ = engine_.view(weights_);
    return engine_.generate(requests, sampling, key, hooks, view_);
  }

  // Tokens computed and reused so far.
  [[nodiscard]] Scheduler::Counts counts() { return engine_.scheduler().counts(); }

  // Gives back the memory of keys and values, and of packed weights: they will have changed before the next call.
  void release_memory() {
    weights_changed();
    engine_.release_memory();
  }

  // The values, or the tensors, are others than at the last call.
  void weights_changed() {
    if (view_) engine_.scheduler().forget(view_->contents);
    view_ = nullptr;
  }

 private:
  DecoderEngine engine_;
  const model::DecoderWeights& weights_;
  Forward::WeightsHandle view_;
};

}  // namespace rlalgo::inference
