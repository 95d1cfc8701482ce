// An engine's half on the CPU: pages in this machine's memory, the pass of decoder_forward.hpp, weights by their pointers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <rlalgo/inference/cache_element.hpp>
#include <rlalgo/inference/detail/decoder_forward.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/expert_notes.hpp>
#include <rlalgo/inference/detail/packed_weights.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/engine_device.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference::detail {

class CpuEngineDevice final : public EngineDevice {
 public:
  CpuEngineDevice(const model::DecoderConfig& decoder, const EngineConfig& engine, os::ThreadPool& pool,
                  std::int64_t max_rows)
      : decoder_(decoder),
        pool_(pool),
        packed_(engine.quantization, engine.pack_weights),
        cache_(decoder, engine.cache_element.value_or(CacheElement::float32), PageMemory::host(), PageMemory::host(),
               engine.routed_experts ? ExpertNotes(decoder).bytes() : 0),
        forward_(decoder, cache_, pool, max_rows, engine.max_slots) {}

  [[nodiscard]] KvCache& cache() override { return cache_; }
  [[nodiscard]] Forward& forward() override { return forward_; }

  // Copied are small bf16 vectors, and matrices that are packed or quantized.
  [[nodiscard]] std::shared_ptr<Forward::Weights> view(const model::DecoderWeights& weights,
                                                       std::shared_ptr<const void> owner,
                                                       std::optional<std::uint64_t> contents) override {
    auto out = std::make_shared<DecoderWeightsView>();
    out->view = DecoderViewer(decoder_, weights).view();
    if (contents != held_contents_) held_.clear();
    out->packed = packed_.pack(out->view, pool_);
    if (contents) held_ = out->packed;
    held_contents_ = contents;
    out->owner = std::move(owner);
    return out;
  }

  void release_memory() override {
    held_.clear();
    held_contents_.reset();
    packed_.release();
  }

 private:
  const model::DecoderConfig& decoder_;
  os::ThreadPool& pool_;
  PackedWeights packed_;
  PackedWeights::Held held_;                    // of the view made last, for the next one of the same values
  std::optional<std::uint64_t> held_contents_;  // their number, where they have one
  KvCache cache_;
  DecoderForward forward_;
};

}  // namespace rlalgo::inference::detail
