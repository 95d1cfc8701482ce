// What must hold between the keys of asynchronous generation, and the rest of the configuration.
//
// Errors (usage): [rlalgo.config.6] a value out of range; [.8] keys that exclude each other.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::config::detail {

// How many updates a completion may be behind when it is first trained on (sampler/prefetch.hpp).
[[nodiscard]] inline std::int64_t largest_staleness(const RunConfig& c, const sampler::Geometry& g) {
  const std::int64_t micro_steps = c.trl.prefetch_depth * g.micro_steps();
  return (micro_steps + g.gradient_accumulation_steps - 1) / g.gradient_accumulation_steps + c.trl.vllm_sync_interval -
         1;
}

// What corrects for a generator whose log-probs are not the trainer's.
inline void validate_correction(const RunConfig& c, Refusals& refusals) {
  const TrlConfig& t = c.trl;
  if (!t.may_correct()) return;
  const auto low = t.vllm_importance_sampling_clip_min, high = t.vllm_importance_sampling_clip_max;
  if (low && high)
    Validator(c, refusals)
        .range("trl.vllm_importance_sampling_clip_min", *low, *low < *high,
               "less than vllm_importance_sampling_clip_max = " + spelled(*high));
  if (t.vllm_importance_sampling_correction && t.vllm_importance_sampling_mode.ends_with("truncate") && !low && !high)
    refusals.add(8, {.what = "vllm_importance_sampling_mode truncates at bounds, and there are none",
                     .where = c.place("trl.vllm_importance_sampling_mode"),
                     .remedy = "set trl.vllm_importance_sampling_clip_max"});
}

// Whether the method can do with completions of quantized weights.
inline void validate_quantization(const RunConfig& c, Refusals& refusals) {
  if (!c.trl.quantizes() || !(is_strided(c) || recipe_of(c).plain)) return;
  const std::string key =
      c.trl.generation_quantization != "none" ? "trl.generation_quantization" : "trl.generation_kv_cache_dtype";
  refusals.add(
      8, {.what = key + " does not go with " + (is_strided(c) ? std::string("ebft.mode: strided") : "rl: " + c.rl) +
                  ": its loss corrects for no other policy than the one that is trained",
          .where = c.place(key),
          .remedy = "remove the key"});
}

// Which methods can be trained on while their completions are made (trainer/streaming.hpp).
inline void validate_streaming(const RunConfig& c, Refusals& refusals) {
  const TrlConfig& t = c.trl;
  if (!t.streaming_partial_batch) return;
  const auto refuse = [&](const std::string& with, const std::string& why) {
    refusals.add(8, {.what = "trl.streaming_partial_batch does not go with " + with + ": " + why,
                     .where = c.place("trl.streaming_partial_batch"),
                     .remedy = "remove one of the two"});
  };
  const std::string whole = "it needs the rewards of the whole batch before the first gradient";
  if (matches_features(c)) refuse("rl: " + c.rl, "its likelihood term has a denominator of its own");
  if (aggregation_of(c) == AggregationPart::normalize_then_sum) {
    if (c.rl == "gdpo") refuse("rl: gdpo", whole);
    refuse("multi_objective_aggregation: normalize_then_sum", whole);
  }
  const EstimatorPart part = estimator_of(c).part;
  if (part == EstimatorPart::group_relative && t.scale_rewards == "batch") refuse("trl.scale_rewards: batch", whole);
  if (part == EstimatorPart::leave_one_out && t.normalize_advantages) refuse("trl.normalize_advantages", whole);
  if (part == EstimatorPart::batch_whitened || part == EstimatorPart::batch_whitened_groups)
    refuse("trl.advantage_estimator: " + t.advantage_estimator, whole);
  if (t.pays_entropy()) refuse("an entropy bonus", "it has a denominator of its own");
}

// What a run of `steps`, given or counted from epochs, says of weights that are handed over once; empty: nothing.
[[nodiscard]] inline std::string never_handed_over(const RunConfig& c, std::int64_t steps) {
  if (!c.trl.is_asynchronous() || c.trl.vllm_sync_interval < steps || steps <= 1) return {};
  return "trl.vllm_sync_interval (" + c.place("trl.vllm_sync_interval") +
         ") is never reached: all completions are of the first weights, with " +
         std::to_string(c.trl.vllm_sync_interval) + " steps between two hand-overs in a run of " +
         std::to_string(steps) + ". A lower one hands newer weights over";
}

// What keys of asynchronous generation come to, where that is not what they say.
[[nodiscard]] inline std::vector<std::string> asynchronous_warnings(const RunConfig& c) {
  std::vector<std::string> out;
  if (c.trl.streaming_partial_batch && c.trl.replay_buffer_size > 0)
    out.push_back(
        "trl.streaming_partial_batch (" + c.place("trl.streaming_partial_batch") +
        ") trains on whole generations: which groups trl.replay_buffer_size replaces is known of a whole one");
  if (c.max_steps)
    if (std::string text = never_handed_over(c, *c.max_steps); !text.empty()) out.push_back(std::move(text));
  return out;
}

inline void validate_asynchronous(const RunConfig& c, Refusals& refusals) {
  const TrlConfig& t = c.trl;
  validate_quantization(c, refusals);
  if (!is_strided(c)) validate_correction(c, refusals);
  for (const char* key : {"trl.async_prefetch", "trl.use_data_producer"})
    if (c.was_set(key) && (t.async_prefetch || t.use_data_producer) && is_strided(c))
      refusals.add(8, {.what = std::string(key) + " does not go with ebft.mode: strided",
                       .where = c.place(key),
                       .remedy = "remove the key, or set ebft.mode: structured"});
  if (t.replay_buffer_size > 0 && matches_features(c))
    refusals.add(8, {.what = "trl.replay_buffer_size does not go with rl: " + c.rl +
                             ": a group brings the likelihood of its ground truth, which would count twice",
                     .where = c.place("trl.replay_buffer_size"),
                     .remedy = "remove the key"});
  if (!t.async_prefetch) return;
  validate_streaming(c, refusals);
  if (!t.max_staleness) return;
  if (!t.is_asynchronous() || !refusals.empty()) return;  // the bound is that of a geometry that holds
  if (const std::int64_t largest = largest_staleness(c, geometry_of(c)); *t.max_staleness < largest)
    refusals.add(
        8, {.what = "trl.max_staleness is smaller than the pipeline can keep",
            .found = std::to_string(*t.max_staleness),
            .expected = std::to_string(largest) + " or more: prefetch_depth " + std::to_string(t.prefetch_depth) +
                        " generations of " + std::to_string(geometry_of(c).micro_steps()) + "/" +
                        std::to_string(c.gradient_accumulation_steps) + " optimizer steps, and vllm_sync_interval " +
                        std::to_string(t.vllm_sync_interval) + " − 1",
            .where = c.place("trl.max_staleness"),
            .remedy = "raise trl.max_staleness, or lower trl.prefetch_depth or trl.vllm_sync_interval"});
}

}  // namespace rlalgo::config::detail
