// An engine's half on a device other than the CPU: pages in its memory, the pass of tensor_forward.hpp, weights as
// tensors.
//
// Errors: [rlalgo.inference.6] weights on another device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/detail/joined_maps.hpp>
#include <rlalgo/inference/detail/tensor_forward.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/engine_device.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/merged_adapter.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::inference::detail {

// Rows of every part of an invariant pass: as many as decode at a time, within what costs a GPU the same.
[[nodiscard]] inline std::int64_t invariant_rows(std::int64_t max_slots) {
  return std::clamp<std::int64_t>(DecodePass::bucket(max_slots), 32, 256);
}

class TensorEngineDevice final : public EngineDevice {
 public:
  TensorEngineDevice(const model::DecoderConfig& decoder, const EngineConfig& engine, at::Device device,
                     std::int64_t max_rows, const tensor::OwnKernels& kernels = tensor::own_kernels())
      : pages_(device, element_type(engine.cache_element), engine.cache_bytes),
        states_(device, at::kFloat),
        cache_(decoder, engine.cache_element.value_or(CacheElement::float32), pages_, states_),
        forward_(decoder, pages_, states_, max_rows, engine.max_slots, kernels,
                 engine.invariant ? invariant_rows(engine.max_slots) : 0),
        quantises_(engine.quantization != Quantization::none),
        merges_(engine.merge_adapter && !quantises_),
        quantised_(engine.quantization, engine.merge_adapter) {}

  [[nodiscard]] KvCache& cache() override { return cache_; }
  [[nodiscard]] Forward& forward() override { return forward_; }

  [[nodiscard]] std::shared_ptr<Forward::Weights> view(const model::DecoderWeights& weights,
                                                       std::shared_ptr<const void> owner,
                                                       std::optional<std::uint64_t> contents) override {
    if (weights.embedding.device() != pages_.device())
      core::raise("inference", 6,
                  {.what = "the engine cannot read weights of another device",
                   .found = "weights on " + weights.embedding.device().str(),
                   .expected = "weights on " + pages_.device().str(),
                   .remedy = "make the engine with EngineConfig::for_weights of these weights"});
    auto out = std::make_shared<TensorWeightsView>();
    out->merged = merges_ ? merged(weights, contents) : nullptr;
    out->weights = out->merged != nullptr ? out->merged->weights() : weights;
    if (quantises_) {
      QuantisedDecoder made = quantised_.of(weights, contents);
      out->weights = std::move(made.weights);
      out->bytes = std::move(made.layers);
      out->head = std::move(made.head);
      out->copies = std::move(made.held);
    }
    if (forward_.decodes_plainly(out->weights, out->bytes)) {
      bool adapted = false;
      for (const model::LayerWeights& layer : out->weights.layers) {
        out->joined.push_back(joined_maps(layer));
        out->adapters.push_back(layer_adapters(layer));
        adapted = adapted || out->adapters.back().rank() > 0;
      }
      if (!adapted) out->adapters.clear();
      out->places = places_of(out->weights, out->adapters);
      if (out->merged == nullptr && !out->weights.lm_head_lora.defined()) out->base = base_of(out->weights);
    }
    out->owner = std::move(owner);
    return out;
  }

  void release_memory() override {
    forward_.release_memory();
    merged_ = nullptr;
    quantised_.release();
    tensor::release_unused_memory(pages_.device());
  }

  void check() override { forward_.check(); }

 private:
  // float8 as bytes, for which a device has every operator.
  [[nodiscard]] static at::ScalarType element_type(std::optional<CacheElement> element) {
    return element == CacheElement::float8 ? at::kByte : element == CacheElement::bfloat16 ? at::kBFloat16 : at::kFloat;
  }

  // Names what adapters that decode in one pass share: all but their products.
  [[nodiscard]] static std::uint64_t base_of(const model::DecoderWeights& weights) {
    return std::max<std::uint64_t>(
        1,
        (places_of(weights) ^ reinterpret_cast<std::uintptr_t>(head_of(weights).const_data_ptr())) * 1099511628211ULL);
  }

  // In the memory of the last ones, unless a view that is still there reads it.
  [[nodiscard]] std::shared_ptr<const MergedAdapter> merged(const model::DecoderWeights& weights,
                                                            std::optional<std::uint64_t> contents) {
    if (merged_ != nullptr && contents && contents == merged_contents_) return merged_;
    if (merged_adapter_bytes(weights) == 0) return nullptr;
    if (merged_ == nullptr || merged_.use_count() > 1) merged_ = std::make_shared<MergedAdapter>();
    merged_->update(weights);
    merged_contents_ = contents;
    return merged_;
  }

  TensorPages pages_, states_;  // outlive the cache
  KvCache cache_;
  TensorForward forward_;
  bool quantises_, merges_;
  QuantisedCopies quantised_;
  std::shared_ptr<MergedAdapter> merged_;
  std::optional<std::uint64_t> merged_contents_;
};

}  // namespace rlalgo::inference::detail
