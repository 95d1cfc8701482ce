// What a configuration says of how weights, gradients and optimizer states lie on the ranks: fsdp, fsdp_config, deepspeed,
// dp_shard_size, dp_replicate_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/config/key.hpp>

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

// clang-format off
// Read by config/detail/read_sharding.hpp.
[[nodiscard]] inline Keys sharding_keys() {
  return {
    key("fsdp_config", "weights, gradients and optimizer states sharded over the ranks ([distributed](distributed.md#sharded-weights)); "
        "also `fsdp`, `fsdp_version`, `deepspeed`. Their precision (`bf16.enabled`, `mixed_precision_policy`) counts where `bf16` is not "
        "said, or `auto`").by("section", nullptr).free(resume::layout),
    key("dp_shard_size", "ranks that share one copy of the model").by("whole number", nullptr).within(count(1)).shows("all ranks")
        .free(resume::layout),
    key("dp_replicate_size", "copies of it").by("whole number", nullptr).within(count(1)).shows("ranks / `dp_shard_size`")
        .free(resume::layout),
  };
}
// clang-format on

}  // namespace rlalgo::config
