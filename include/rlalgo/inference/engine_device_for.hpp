// Which half of an engine reads weights of a device: the one place where that is chosen.
//
//   CPU       detail/cpu_engine_device.hpp: kernels of our own on raw pointers; weights in int8 and packed ones
//   another   detail/tensor_engine_device.hpp: the operators of ATen, on any device that it knows; weights in int8 and fp8
//
// Errors: (usage) [rlalgo.inference.19] what the CPU cannot do (fp8); [.21] a model that it cannot compute so (EngineConfig::invariant).
#pragma once

#include <cstdint>
#include <memory>

#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/engine_device.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

// Of engine.device, for passes of at most `max_rows` rows, of which engine.max_slots ask for logits. `decoder` and `pool`
// outlive it.
[[nodiscard]] std::unique_ptr<EngineDevice> engine_device_for(const model::DecoderConfig& decoder,
                                                              const EngineConfig& engine, os::ThreadPool& pool,
                                                              std::int64_t max_rows);

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/engine_device_for_impl.hpp>
#endif
