// What a configuration says of how weights, gradients and optimizer states lie on the ranks: fsdp, fsdp_config, deepspeed,
// dp_shard_size, dp_replicate_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rlalgo::config {

struct ShardingConfig {
  std::int64_t stage = 0;  // of ZeRO: 1 optimizer states, 2 gradients, 3 weights are sharded; 0: nothing
  bool reshard_after_forward = true;
  std::optional<std::int64_t> shard_size;      // ranks that share one model; all unless set
  std::optional<std::int64_t> replicate_size;  // copies of it; ranks / shard_size unless set
  bool file_of_each = false;                   // the saved model has as many files as ranks that share it
  std::string key;                             // derived: the key that asks for it
  std::optional<std::string> layout;           // derived: the above in words, for messages

  [[nodiscard]] bool on() const { return stage > 0; }
  [[nodiscard]] bool weights() const { return stage == 3; }
};

}  // namespace rlalgo::config
