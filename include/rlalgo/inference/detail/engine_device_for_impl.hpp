// Definitions of engine_device_for.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/detail/cpu_engine_device.hpp>
#include <rlalgo/inference/detail/tensor_engine_device.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/engine_device.hpp>
#include <rlalgo/inference/engine_device_for.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

RLALGO_INLINE std::unique_ptr<EngineDevice> engine_device_for(const model::DecoderConfig& decoder,
                                                              const EngineConfig& engine, os::ThreadPool& pool,
                                                              std::int64_t max_rows) {
  const at::Device device = engine.device.value_or(at::Device(at::kCPU));
  if (device.is_cpu()) {
    const auto refuse = [](const char* what, const char* remedy) {
      core::raise_usage("inference", 19, {.what = what, .where = "the CPU", .remedy = remedy});
    };
    if (engine.quantization == Quantization::fp8)
      refuse("weights in fp8 are generated with on a GPU alone",
             "int8 is what the CPU multiplies by, or leave the quantization out");
    if (engine.cache_element == CacheElement::float8)
      refuse("keys and values in fp8 are kept on a GPU alone",
             "leave --kv-cache-dtype out: keys and values are bfloat16 where the weights are");
    return std::make_unique<detail::CpuEngineDevice>(decoder, engine, pool, max_rows);
  }
  if (engine.invariant)
    for (std::int64_t l = 0; l < decoder.layers; ++l)
      if (decoder.spec(l).experts.count > 0 || decoder.spec(l).delta.present())
        core::raise_usage(
            "inference", 21,
            {.what = "generation that does not depend on its neighbours is not there for this model on this device",
             .found = decoder.spec(l).experts.count > 0
                          ? "layer " + std::to_string(l) +
                                " has experts, whose products have as many rows as tokens choose them"
                          : "layer " + std::to_string(l) + " has linear attention, whose chunks are those of a pass",
             .where = device.str(),
             .remedy = "leave it out (trl.generation_invariant, --generation-invariant), or compute on the CPU, where "
                       "it is always so"});
  return std::make_unique<detail::TensorEngineDevice>(decoder, engine, device, max_rows);
}

}  // namespace rlalgo::inference
