// Definitions of engine_device_for.hpp.
#pragma once

#include <cstdint>
#include <memory>

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
  return std::make_unique<detail::TensorEngineDevice>(decoder, engine, device, max_rows);
}

}  // namespace rlalgo::inference
