// Asynchronous generation, and what may stand between generation and training (docs/async.md). Where neither
// trl.async_prefetch nor trl.use_data_producer is on, the others have no effect.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/config/key.hpp>

namespace rlalgo::config {

struct AsynchronousConfig {
  bool use_data_producer = false;  // alone: generation and training take turns, as without it
  bool async_prefetch = false;
  std::int64_t prefetch_depth = 1;
  std::int64_t vllm_sync_interval = 1;
  std::optional<std::int64_t> max_staleness;
  bool streaming_partial_batch = false;
  std::int64_t streaming_min_groups = 1;
  std::string async_schedule = "live";
  std::optional<std::string> async_schedule_file;  // unset: async_schedule.jsonl in output_dir
  std::int64_t heartbeat_stale_after_s = 300;
  std::int64_t replay_buffer_size = 0;
  std::optional<std::int64_t> replay_max_age;
  std::optional<bool> replay_recompute_logps;
  double reroll_start_fraction = 1.0;
  std::int64_t reroll_max_groups = 1;
  [[nodiscard]] bool is_asynchronous() const {
    return async_prefetch && (prefetch_depth > 0 || streaming_partial_batch);
  }
  // How many groups of a generation are finished together; 0: it is not trained on while it is made.
  [[nodiscard]] std::int64_t groups_in_a_piece() const {
    return streaming_partial_batch ? std::max<std::int64_t>(1, streaming_min_groups) : 0;
  }
};

// clang-format off
[[nodiscard]] inline Keys asynchronous_keys(AsynchronousConfig& a) {
  const auto needs = [](auto holds) {
    return where(holds, "it concerns asynchronous generation (trl.async_prefetch)");
  };
  const Gate either = needs([&a] { return a.async_prefetch || a.use_data_producer; });
  const Gate replays = needs([&a] { return (a.async_prefetch || a.use_data_producer) && a.replay_buffer_size > 0; });
  const Gate rerolls =
      needs([&a] { return (a.async_prefetch || a.use_data_producer) && a.reroll_start_fraction < 1.0; });
  const Gate ahead = needs([&a] { return a.async_prefetch; });
  const Gate streams = needs([&a] { return a.async_prefetch && a.streaming_partial_batch; });
  return {
    key("trl.use_data_producer", a.use_data_producer, "generation apart from training; alone it changes nothing").only_if_written(),
    key("trl.async_prefetch", a.async_prefetch, "generations are made ahead, asynchronously ([async.md](async.md))").only_if_written(),
    key("trl.replay_buffer_size", a.replay_buffer_size, "groups that taught something and come again; 0 = none. This key and the next "
        "four: of `async_prefetch` or `use_data_producer`").within(at_least(0).to(1e6)).when(either),
    key("trl.replay_max_age", a.replay_max_age, "updates that a group may be old; unset = no limit (ours)").within(count(0)).when(replays),
    key("trl.replay_recompute_logps", a.replay_recompute_logps, "old log-probs of replayed rows: the policy's as it is, or their "
        "generator's. Unset: the first where a correction stands for the difference between the two, else the second").when(replays),
    key("trl.reroll_start_fraction", a.reroll_start_fraction, "share of the run's steps after which prompts that failed come again")
        .within(fraction.meaning("1 = never")).when(either),
    key("trl.reroll_max_groups", a.reroll_max_groups, "so many of them in a generation").within(count(1)).when(rerolls),
    key("trl.prefetch_depth", a.prefetch_depth, "generations made ahead; 0 = none. This key and the rest: of `async_prefetch`")
        .within(at_least(0).to(1024)).when(ahead),
      // 0 is 1, as in axolotl.
    key("trl.vllm_sync_interval", a.vllm_sync_interval, "optimizer steps between two hand-overs of the weights, at least").by(
        "whole number", [&a](const Node& node) { detail::convert(node, "trl.vllm_sync_interval",
        a.vllm_sync_interval); if (a.vllm_sync_interval == 0) a.vllm_sync_interval = 1; }).within(count(1)).or_nothing().when(ahead),
    key("trl.max_staleness", a.max_staleness, "updates that a completion may be behind, which the two before must keep; unset = no limit "
        "(TRL's name)").within(count(0)).when(ahead),
    key("trl.streaming_partial_batch", a.streaming_partial_batch, "a generation is trained on while it is made").when(ahead)
        .only_if_written(),
    key("trl.streaming_min_groups", a.streaming_min_groups, "groups that are finished together; less than 1 is 1")
        .within({.high = Range::most}).when(streams),
    key("trl.async_schedule", a.async_schedule, "`record` which weights each call had, or repeat it (ours)").one_of({"live", "record",
        "recorded"}).when(ahead).only_if_written(),
    key("trl.async_schedule_file", a.async_schedule_file, "where it is").shows("`async_schedule.jsonl` in `output_dir`")
        .when(where([&a] { return a.async_prefetch && a.async_schedule != "live"; }, "trl.async_schedule is live")).a_path(),
    key("trl.heartbeat_stale_after_s", a.heartbeat_stale_after_s, "seconds without a sign of life, deadlines aside, after which a "
        "producer has failed (TRL's name)").within(count(1)).when(ahead).free(resume::wait),
  };
}
// clang-format on

}  // namespace rlalgo::config
