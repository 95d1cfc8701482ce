// Weight sync by broadcast through a process group; HTTP requests to the server begin and end each broadcast, in the order that its
// routes need.
//
// TRL's (`trl vllm-serve`, and axolotl's): the server's worker 0 has the store, its W workers are ranks 0 to W − 1, the
// trainer is rank W.
//   GET  /get_world_size/                         → W
//   POST /init_communicator/ {"host", "port", "world_size": W + 1, "client_device_uuid"}, and both meet
//   POST /update_named_param/ {"name", "dtype": "torch.bfloat16", "shape"}, the broadcast from W, a barrier: each tensor;
//     or, where there is that route, /batch_update_named_params/ {"params": [these]}, broadcasts, one barrier: each list
//   POST /reset_prefix_cache/                     and, in the end, /close_communicator/
//
// vLLM's (stock servers, and rlalgo's own): the trainer is rank 0 and has the store, the workers follow.
//   GET  /get_world_size?include_dp=true          → W
//   POST /init_weight_transfer_engine {"init_info": {"master_address", "master_port", "rank_offset": 1, "world_size"}}
//   POST /pause?mode=keep, /start_weight_update
//   POST /update_weights {"update_info": {"names", "dtype_names", "shapes"}}: while it waits, the broadcasts from 0, packed
//     into buffers of bytes, each of which ends after the tensor that passes `packed_bytes`
//   POST /finish_weight_update, /reset_prefix_cache, /resume
// Before vLLM 0.28 an update says how it is packed, from then on the meeting does. rlalgo's own server is not paused: an
// update is in force all at once, in a session of the trainer's.
//
// Transport: NCCL between vLLM's StatelessProcessGroups (distributed/nccl_group.hpp), or Gloo, which rlalgo's server
// speaks in both orders. Tensors of bfloat16 and float16 travel as such, others as float32.
//
// publish(v) sends, once per version. The status of every act counts: what the server refuses ends the broadcast of
// the same update, and the other way round; every wait ends within its seconds, and when the calls to the server are given up. What
// failed in a group that had been met before is tried once more in a new one: the server may have been started anew. A
// vLLM server is resumed however an update ends.
//
// Source: TRL's VLLMClient, axolotl's vllm_worker_ext, vLLM's weight_transfer.
//
// Errors: [rlalgo.sync.1] the server has the routes of neither order; [.8] of detail/weight_session.hpp; [.9] a meeting
// or a broadcast failed; [.10] the broadcast was given up (a os::Interrupted); those of http/json_client.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

class BroadcastSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  static constexpr Hooks hooks{.forget = true};
  using Json = nlohmann::ordered_json;
  // The weights in force, under the names the server's model knows them by; made one at a time.
  using Weights = std::function<model::PendingTensors()>;

  enum class Transport { nccl, gloo };
  enum class Order { trl, vllm };
  struct Settings {
    Transport transport = Transport::nccl;
    std::optional<Order> order{};                        // nothing: the server's routes say it
    std::uint16_t group_port = 51216;                    // of the store; 0, in vLLM's order: one that is free
    double seconds = 120.0;                              // for the meeting, and for each broadcast and barrier
    std::size_t packed_bytes = std::size_t{256} << 20U;  // of a buffer, or of one list of axolotl's
    bool lists = true;                                   // axolotl's, where the server takes them
    int device = 0;                                      // the GPU of NCCL: that of the weights
  };

  // `start_seconds`: how long the first push waits for the server to be up; `tell` hears that it does.
  BroadcastSync(http::ClientConfig server, Weights weights, Settings settings, double start_seconds = 240.0,
                std::function<void(const std::string&)> tell = {});

  // Sends the weights in force, once per version; `bytes` are of tensors.
  Published publish(std::int64_t version);
  // The server was started anew: the next publish waits for it, meets it and sends all again.
  void forget();
  // The version that the server has.
  [[nodiscard]] std::function<std::int64_t()> version_source() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

static_assert(SyncPolicy<BroadcastSync>);

}  // namespace rlalgo::sync

#ifndef RLALGO_COMPILED
#include <rlalgo/sync/detail/broadcast_sync_impl.hpp>
#endif
