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
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

RLALGO_INLINE std::unique_ptr<EngineDevice> engine_device_for(const model::DecoderConfig& decoder,
                                                              const EngineConfig& engine, os::ThreadPool& pool,
                                                              std::int64_t max_rows) {
  const at::Device device = engine.device.value_or(at::Device(at::kCPU));
  if (device.is_cpu()) return std::make_unique<detail::CpuEngineDevice>(decoder, engine, pool, max_rows);
  if (engine.quantization != Quantization::none)
    core::raise_usage("inference", 19,
                      {.what = "generation with weights in 8 bits is computed on the CPU alone",
                       .where = device.str(),
                       .remedy = "leave the quantization out, or compute on the CPU (device: cpu)"});
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
