// The keys of generation beside training, and of what may stand between generation and training. Where neither
// trl.async_prefetch nor trl.use_data_producer is on, the others have no effect.
#pragma once

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

inline void read_asynchronous(Reader& reader, TrlConfig& trl) {
  read_if_there(reader, "use_data_producer", trl.use_data_producer);
  read_if_there(reader, "async_prefetch", trl.async_prefetch);
  if (!trl.async_prefetch && !trl.use_data_producer) return;
  reader.read("replay_buffer_size", trl.replay_buffer_size);
  if (trl.replay_buffer_size > 0) {
    reader.read("replay_max_age", trl.replay_max_age);
    reader.read("replay_recompute_logps", trl.replay_recompute_logps);
  }
  reader.read("reroll_start_fraction", trl.reroll_start_fraction);
  if (trl.reroll_start_fraction < 1.0) reader.read("reroll_max_groups", trl.reroll_max_groups);
  if (!trl.async_prefetch) return;
  reader.read("prefetch_depth", trl.prefetch_depth);
  reader.read("vllm_sync_interval", trl.vllm_sync_interval);
  if (trl.vllm_sync_interval == 0) trl.vllm_sync_interval = 1;  // as in axolotl
  reader.read("max_staleness", trl.max_staleness);
  read_if_there(reader, "streaming_partial_batch", trl.streaming_partial_batch);
  if (trl.streaming_partial_batch) reader.read("streaming_min_groups", trl.streaming_min_groups);
  if (reader.section().find("async_schedule") != nullptr) {
    reader.read_choice("async_schedule", trl.async_schedule, {"live", "record", "recorded"});
    reader.read("async_schedule_file", trl.async_schedule_file);
  }
  reader.read("heartbeat_stale_after_s", trl.heartbeat_stale_after_s);
}

}  // namespace rlalgo::config::detail
