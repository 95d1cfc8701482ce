// The keys of generation beside training. Where trl.async_prefetch is off, the others have no effect.
#pragma once

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

// A key that is absent is no setting of the run: runs without it are what they were.
template <class T>
void read_if_there(Reader& reader, const std::string& key, T& out) {
  if (reader.section().find(key) != nullptr)
    reader.read(key, out);
  else
    reader.recognise(key);
}

inline void read_asynchronous(Reader& reader, TrlConfig& trl) {
  read_if_there(reader, "use_data_producer", trl.use_data_producer);
  read_if_there(reader, "async_prefetch", trl.async_prefetch);
  if (!trl.async_prefetch) return;
  reader.read("prefetch_depth", trl.prefetch_depth);
  reader.read("vllm_sync_interval", trl.vllm_sync_interval);
  if (trl.vllm_sync_interval == 0) trl.vllm_sync_interval = 1;  // as in axolotl
  reader.read("max_staleness", trl.max_staleness);
  reader.read("heartbeat_stale_after_s", trl.heartbeat_stale_after_s);
  apply_lacking(reader, lacking_asynchronous_keys());
  if (const Node* node = reader.take("reroll_start_fraction");
      node != nullptr && node->kind != Kind::null && node->text != "1" && node->text != "1.0")
    raise_lacking(reader.prefix() + "reroll_start_fraction", *node,
                  "failed prompts are not tried again; remove the key");
}

}  // namespace rlalgo::config::detail
