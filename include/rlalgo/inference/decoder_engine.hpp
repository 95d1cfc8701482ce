// A scheduler over the CPU's forward pass, with the memory and threads that they need, and a call that generates a
// batch to its end.
//
// generate() submits all requests, steps until they are done, and is what LocalEngine and SnapshotEngine are made of;
// they differ in whose weights they read. scheduler() is for those whose requests come one by one, each with weights
// that view() has read.
//
// f32 weights are computed with as they are; bf16 weights are widened in the inner loop, or multiply activations that
// are rounded to bf16 where the CPU has such products (cpu_kernels.hpp). Activations are f32; keys and values are bf16 where
// the weights are and the CPU attends to it (cache_element.hpp).
// Reproducibility: see scheduler.hpp; on one kind of CPU.
//
// Errors: [rlalgo.inference.6] a weight tensor that cannot be read; [.7] an engine setting out of range; those of
// scheduler.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rlalgo/core/thread_pool.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/cache_element.hpp>
#include <rlalgo/inference/detail/check_request.hpp>
#include <rlalgo/inference/detail/decoder_forward.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/packed_weights.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::inference {

struct EngineConfig {
  // As scheduler_config.hpp has them: completions decoded at the same time; prompt tokens added to one pass; prompt tokens at most for which
  // those that decode are held up, 0 = never.
  std::int64_t max_slots = SchedulerConfig{}.max_slots;
  std::int64_t prefill_rows = SchedulerConfig{}.prefill_rows;
  std::int64_t prefill_ahead = SchedulerConfig{}.prefill_ahead;
  int threads = 0;  // at most so many, as the size of the work asks for; 0 = those of LibTorch that have a processor
  std::size_t cache_bytes = 0;  // keys and values of running requests and kept prefixes; 0 = SchedulerConfig's
  bool keep_prefixes = false;   // reuse what an earlier call computed, until the owner says weights_changed()
  // Of keys and values; nothing = as the weights that an engine is made with ask for (cache_element.hpp), else float32.
  std::optional<CacheElement> cache_element = {};
  Quantization quantization = Quantization::none;  // of the weights that are generated with (quantization.hpp)
  // Multiplies by copies of weights in bfloat16, in the order that kernels read best, where the CPU's have one (packs_bfloat16() of cpu_kernels.hpp):
  // for as much memory as the weights take. Log-probs differ in rounding.
  bool pack_weights = false;
  // Decodes completions of a prompt (text_streams.hpp), where SamplingConfig::stop_strings end them; none: they cannot.
  std::function<std::function<TextStream()>(std::span<const data::TokenId> prompt, const SamplingConfig& sampling)>
      texts = nullptr;

  [[nodiscard]] EngineConfig with_cache_for(const model::DecoderWeights& weights) const {
    EngineConfig out = *this;
    if (!out.cache_element)
      out.cache_element = quantization == Quantization::none ? cache_element_for(weights) : smallest_cache_element();
    return out;
  }
};

// What a caller may watch and stop while generate() runs. Both are called on the thread of generate().
struct GenerateHooks {
  struct Token {
    std::size_t request;
    std::int64_t completion;  // in [0, count)
    data::TokenId id;
    float log_prob;
  };
  std::function<void(const Token&)> on_token;  // each token as soon as it is drawn
  std::function<bool()> cancelled;             // asked once per token step; true ends all completions as aborted
};

class DecoderEngine {
 public:
  explicit DecoderEngine(const model::DecoderConfig& decoder, EngineConfig engine = {},
                         Scheduler::TextStreams text = nullptr, std::vector<data::TokenId> eos_ids = {});
  DecoderEngine(const DecoderEngine&) = delete;
  DecoderEngine& operator=(const DecoderEngine&) = delete;

  [[nodiscard]] const model::DecoderConfig& decoder_config() const noexcept { return decoder_; }
  [[nodiscard]] const EngineConfig& config() const noexcept { return engine_; }
  [[nodiscard]] Scheduler& scheduler() noexcept { return scheduler_; }

  // Reads the tensors' pointers; copied are small bf16 vectors, and matrices that are packed or quantized
  // (detail/packed_weights.hpp). The tensors must stay as they are while requests on them run. `owner` keeps them; `contents`: the number of an earlier view of the same values.
  [[nodiscard]] Forward::WeightsHandle view(const model::DecoderWeights& weights, std::int64_t version = -1,
                                            std::shared_ptr<const void> owner = nullptr,
                                            std::optional<std::uint64_t> contents = {});

  // Gives back the memory of keys and values and of packed weights that nobody has.
  void release_memory();

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key, const GenerateHooks& hooks,
                                                      const Forward::WeightsHandle& weights);

 private:
  static EngineConfig checked(EngineConfig engine);

  RequestSpec specify(const Request& request, std::size_t number, const SamplingConfig& sampling, DrawKey key,
                      const GenerateHooks& hooks, const Forward::WeightsHandle& weights,
                      std::vector<data::Completion>& out) const;

  model::DecoderConfig decoder_;
  EngineConfig engine_;
  core::ThreadPool pool_;
  detail::PackedWeights packed_;
  detail::PackedWeights::Held held_;            // of the view made last, for the next one of the same values
  std::optional<std::uint64_t> held_contents_;  // their number, where they have one
  KvCache cache_;
  detail::DecoderForward forward_;
  Scheduler scheduler_;
  std::uint64_t next_contents_ = 1;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/decoder_engine_impl.hpp>
#endif
