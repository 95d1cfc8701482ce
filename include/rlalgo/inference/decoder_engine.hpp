// A scheduler over the forward pass of a device (engine_device.hpp), with the memory and threads that they need, and a
// call that generates a batch to its end.
//
// generate() submits all requests, steps until they are done, and is what LocalEngine and SnapshotEngine are made of;
// they differ in whose weights they read. scheduler() is for those whose requests come one by one, each with weights
// that view() has read.
//
// On the CPU, f32 weights are computed with as they are; bf16 weights are widened in the inner loop, or multiply activations that
// are rounded to bf16 where the CPU has such products (cpu_kernels.hpp). Activations are f32; keys and values are bf16 where
// the weights are and the CPU attends to it (cache_element.hpp). On another device activations, keys and values have the
// dtype of the weights.
// Reproducibility: see scheduler.hpp; on one kind of CPU.
//
// Errors: [rlalgo.inference.6] a weight tensor that cannot be read; [.7] an engine setting out of range; [.19] what a device
// other than the CPU cannot do; those of scheduler.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/check_request.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/engine_device.hpp>
#include <rlalgo/inference/engine_device_for.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

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

  // Reads where the tensors lie; on the CPU, small bf16 vectors and matrices that are packed or quantized are copied
  // (detail/packed_weights.hpp). The tensors must stay as they are while requests on them run. `owner` keeps them; `contents`: the number of an earlier view of the same values.
  [[nodiscard]] Forward::WeightsHandle view(const model::DecoderWeights& weights, std::int64_t version = -1,
                                            std::shared_ptr<const void> owner = nullptr,
                                            std::optional<std::uint64_t> contents = {});

  // Gives back the memory of keys and values and of packed weights that nobody has.
  void release_memory();
  // Raises what a device says that computes nothing any more.
  void check_device() { device_->check(); }

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
  os::ThreadPool pool_;
  std::unique_ptr<EngineDevice> device_;
  Scheduler scheduler_;
  std::uint64_t next_contents_ = 1;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/decoder_engine_impl.hpp>
#endif
