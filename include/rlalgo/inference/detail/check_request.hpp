// What a request may ask of a model and of an engine, and what an engine may be set to.
//
// Errors: [rlalgo.inference.1] no room for a completion; [.2] an empty prompt; [.3] an id outside the vocabulary;
// [.4] a sampling setting out of range; [.7] an engine setting out of range; [.10] more memory than there is; [.11] text
// without a tokenizer; [.12] another setting of a request out of range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/sampling.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::inference::detail {

inline void check_id(const model::DecoderConfig& decoder, data::TokenId id, const std::string& where) {
  if (id < 0 || id >= decoder.vocab_size)
    core::raise("inference", 3,
                {.what = "a token id is outside the model's vocabulary",
                 .found = std::to_string(id),
                 .expected = "0 to " + std::to_string(decoder.vocab_size - 1),
                 .where = where,
                 .remedy = "use the tokenizer that belongs to the model"});
}

inline void check_sampling(const model::DecoderConfig& decoder, const SamplingConfig& sampling) {
  check(sampling);
  for (const data::TokenId id : sampling.stop_ids) check_id(decoder, id, "stop_ids");
}

inline void check_tokens(const model::DecoderConfig& decoder, std::span<const data::TokenId> prompt,
                         std::span<const data::TokenId> given, const std::string& where) {
  const std::int64_t length = static_cast<std::int64_t>(prompt.size());
  if (length == 0)
    core::raise("inference", 2, {.what = "a prompt is empty", .expected = "at least one token", .where = where});
  if (length >= decoder.context_length())
    core::raise("inference", 1,
                {.what = "a prompt leaves no room for a completion",
                 .found = std::to_string(length) + " tokens",
                 .expected = "fewer than " + decoder.context_limit() + ", the model's maximum context length",
                 .where = where,
                 .remedy = "shorten the prompt or drop the row"});
  for (const data::TokenId id : prompt) check_id(decoder, id, where);
  for (const data::TokenId id : given) check_id(decoder, id, where);
  if (length + static_cast<std::int64_t>(given.size()) > decoder.context_length())
    core::raise("inference", 1,
                {.what = "a prompt leaves no room for the completion given",
                 .found = std::to_string(length) + " and " + std::to_string(given.size()) + " tokens",
                 .expected = "together at most " + decoder.context_limit() + ", the model's maximum context length",
                 .where = where,
                 .remedy = "shorten the row or drop it"});
}

inline void check_request(const model::DecoderConfig& decoder, const RequestSpec& spec, bool has_text) {
  check_sampling(decoder, spec.sampling);
  check_tokens(decoder, spec.prompt, spec.given, "the request");
  const auto require = [](bool good, const char* name, std::int64_t value, const std::string& expected) {
    if (!good)
      core::raise_usage("inference", 12,
                        {.what = std::string("request setting ") + name + " is out of range",
                         .found = std::to_string(value),
                         .expected = expected});
  };
  constexpr std::int64_t most = 1 << 20;
  require(spec.count >= 1 && spec.count <= most, "count", spec.count, "1 to " + std::to_string(most));
  require(spec.min_new_tokens >= 0 && spec.min_new_tokens <= spec.sampling.max_new_tokens, "min_new_tokens",
          spec.min_new_tokens, "0 to max_new_tokens");
  require(spec.top_log_probs >= 0 && spec.top_log_probs <= decoder.vocab_size, "top_log_probs", spec.top_log_probs,
          "0 to the size of the vocabulary");
  const std::int64_t alternatives = spec.prompt_log_probs.value_or(0);
  require(alternatives >= 0 && alternatives <= decoder.vocab_size, "prompt_log_probs", alternatives,
          "0 to the size of the vocabulary");
  if ((spec.text || !spec.stop_strings.empty()) && !has_text && !spec.text_stream)
    core::raise_usage("inference", 11,
                      {.what = "a request wants text, and the scheduler cannot decode",
                       .expected = "stop ids alone",
                       .remedy = "construct the scheduler with the tokenizer's stream decoder"});
}

inline SchedulerConfig checked(SchedulerConfig config, const Forward& forward) {
  const auto require = [](bool good, const char* name, std::int64_t value, std::int64_t most) {
    if (!good)
      core::raise_usage("inference", 7,
                        {.what = std::string("engine setting ") + name + " is out of range",
                         .found = std::to_string(value),
                         .expected = "1 to " + std::to_string(most)});
  };
  require(config.max_slots >= 1 && config.max_slots <= forward.max_logits(), "max_slots", config.max_slots,
          forward.max_logits());
  const std::int64_t rest = forward.max_rows() - config.max_slots;
  require(config.prefill_rows >= 1 && config.prefill_rows <= rest, "prefill_rows", config.prefill_rows, rest);
  if (config.prefill_ahead < 0)
    core::raise_usage("inference", 7,
                      {.what = "engine setting prefill_ahead is out of range",
                       .found = std::to_string(config.prefill_ahead),
                       .expected = "0 (never ahead) or more"});
  return config;
}

// Tokens of a completion at most.
[[nodiscard]] inline std::int64_t room_of(const model::DecoderConfig& decoder, const RequestSpec& spec) {
  if (!spec.given.empty()) return static_cast<std::int64_t>(spec.given.size());
  return std::min(spec.sampling.max_new_tokens,
                  decoder.context_length() - static_cast<std::int64_t>(spec.prompt.size()));
}

// A completion alone must fit: its pages (the last token is never computed), and the last one of its prompt twice.
inline void check_memory(const KvCache& cache, std::int64_t prompt, std::int64_t room) {
  const std::size_t pages = KvCache::pages_for(prompt + room - 1) + 1;
  if (cache.limit() > 0 && pages > cache.limit())
    core::raise("inference", 10,
                {.what = "a request needs more memory for keys and values than there is",
                 .found = std::to_string(pages * cache.page_bytes()) + " bytes for " + std::to_string(prompt) +
                          " and " + std::to_string(room) + " tokens",
                 .expected = "at most " + std::to_string(cache.limit() * cache.page_bytes()),
                 .where = "the request",
                 .remedy = "ask for fewer tokens, or raise what keys and values may take: cache_bytes; of a server "
                           "--kv-cache-mb, on a "
                           "GPU --gpu-memory-utilization; of a training trl.vllm_gpu_memory_utilization"});
}

}  // namespace rlalgo::inference::detail
