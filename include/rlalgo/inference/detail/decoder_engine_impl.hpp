// Definitions of decoder_engine.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/activity.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
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
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::inference {

RLALGO_INLINE DecoderEngine::DecoderEngine(const model::DecoderConfig& decoder, EngineConfig engine,
                                           Scheduler::TextStreams text, std::vector<data::TokenId> eos_ids)
    : decoder_(decoder),
      engine_(checked(engine)),
      pool_(engine_.threads > 0 ? engine_.threads : tensor::available_threads()),
      device_(engine_device_for(decoder_, engine_, pool_, engine_.max_slots + engine_.prefill_rows)),
      scheduler_(decoder_, device_->forward(), device_->cache(), pool_,
                 {.max_slots = engine_.max_slots,
                  .prefill_rows = engine_.prefill_rows,
                  .prefill_ahead = engine_.prefill_ahead,
                  .cache_bytes = engine_.cache_bytes,
                  .saved_bytes = engine_.saved_bytes,
                  .eos_ids = std::move(eos_ids)},
                 std::move(text)) {}

RLALGO_INLINE Forward::WeightsHandle DecoderEngine::view(const model::DecoderWeights& weights, std::int64_t version,
                                                         std::shared_ptr<const void> owner,
                                                         std::optional<std::uint64_t> contents) {
  const std::shared_ptr<Forward::Weights> out = device_->view(weights, std::move(owner), contents);
  out->version = version;
  out->contents = contents ? *contents : next_contents_++;
  return out;
}

RLALGO_INLINE void DecoderEngine::release_memory() {
  scheduler_.release_memory();
  device_->release_memory();
}

RLALGO_INLINE std::vector<std::vector<data::Completion>> DecoderEngine::generate(
    std::span<const Request> requests, const SamplingConfig& sampling, DrawKey key, const GenerateHooks& hooks,
    const Forward::WeightsHandle& weights) {
  detail::check_sampling(decoder_, sampling);
  for (std::size_t r = 0; r < requests.size(); ++r)
    detail::check_tokens(decoder_, requests[r].prompt, requests[r].given, "request " + std::to_string(r));
  std::vector<std::vector<data::Completion>> completions(requests.size());
  std::vector<RequestId> ids;
  try {
    for (std::size_t r = 0; r < requests.size(); ++r)
      if (requests[r].count > 0)
        ids.push_back(scheduler_.submit(specify(requests[r], r, sampling, key, hooks, weights, completions[r])));
    while (!scheduler_.idle()) {
      if (hooks.cancelled && hooks.cancelled()) {
        for (const RequestId id : ids) scheduler_.cancel(id);
        break;
      }
      scheduler_.step();
      core::Activity::tick();
    }
  } catch (...) {
    scheduler_.clear();
    throw;
  }
  return completions;
}

RLALGO_INLINE EngineConfig DecoderEngine::checked(EngineConfig engine) {
  if (engine.prefill_rows == 0) engine.prefill_rows = prefill_rows_of(engine.device.value_or(at::kCPU));
  const auto require = [](bool good, const char* name, std::int64_t value, const char* expected) {
    if (!good)
      core::raise_usage("inference", 7,
                        {.what = std::string("engine setting ") + name + " is out of range",
                         .found = std::to_string(value),
                         .expected = expected});
  };
  require(engine.max_slots >= 1 && engine.max_slots <= 4096, "max_slots", engine.max_slots, "1 to 4096");
  require(engine.prefill_rows >= 1 && engine.prefill_rows <= 65'536, "prefill_rows", engine.prefill_rows,
          "1 to 65536, or 0 (as the device asks for)");
  require(engine.cache_element != CacheElement::bfloat16 || !engine.device.value_or(at::kCPU).is_cpu() ||
              attends_to_bfloat16(),
          "cache_element", 16, "float32: this CPU, or the kernels that RLALGO_CPU names, do not attend to bfloat16");
  require(engine.threads >= 0 && engine.threads <= 1024, "threads", engine.threads, "0 (automatic) to 1024");
  return engine;
}

RLALGO_INLINE RequestSpec DecoderEngine::specify(const Request& request, std::size_t number,
                                                 const SamplingConfig& sampling, DrawKey key,
                                                 const GenerateHooks& hooks, const Forward::WeightsHandle& weights,
                                                 std::vector<data::Completion>& out) const {
  RequestSpec spec;
  spec.prompt = request.prompt;
  spec.count = request.count;
  spec.sampling = sampling;
  if (request.max_new_tokens > 0)
    spec.sampling.max_new_tokens = std::min(request.max_new_tokens, sampling.max_new_tokens);
  if (request.given.empty()) {
    spec.min_new_tokens = std::min(sampling.min_new_tokens, spec.sampling.max_new_tokens);
    spec.stop_strings = sampling.stop_strings;
    if (!spec.stop_strings.empty() && engine_.texts) spec.text_stream = engine_.texts(request.prompt, sampling);
  }
  spec.key = key;
  spec.first_index = request.first_index;
  spec.first_position = request.first_position;
  spec.given = request.given;
  spec.ignore_eos = true;  // the sampling's stop ids are all there are
  spec.weights = weights;
  if (hooks.on_token)
    spec.on_token = [&hooks, number](const TokenEvent& token) {
      hooks.on_token({number, token.completion, token.id, token.log_prob});
    };
  out.reserve(static_cast<std::size_t>(request.count));
  spec.on_end = [&out](RequestId, RequestResult&& result) {
    for (CompletionResult& one : result.completions) out.push_back(std::move(one.completion));
    core::Activity::advance_innermost(static_cast<std::int64_t>(result.completions.size()));
  };
  return spec;
}

}  // namespace rlalgo::inference
