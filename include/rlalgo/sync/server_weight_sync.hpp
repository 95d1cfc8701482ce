// Full weights to a generation server, by the way that it takes; chosen at the first publish, when the server is up:
//
//   rlalgo's own server        over HTTP or in a file (HttpWeightSync); by broadcast over Gloo where it was started with
//                              --weight-transfer-config '{"backend": "gloo"}'
//   with /http_update_weights/ over HTTP
//   with vLLM's or TRL's routes for broadcasts
//                              over NCCL (BroadcastSync), where its libraries and a GPU are here
//
// Errors: [rlalgo.sync.1] none of these; those of http_weight_sync.hpp and broadcast_sync.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/broadcast_sync.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

class ServerWeightSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  static constexpr Hooks hooks{.forget = true};
  using Weights = BroadcastSync::Weights;

  // `start_seconds`: how long the first push waits for the server to be up; `tell` hears that it does. `folder`: of the
  // file; empty: none is written. Of `broadcast` the transport is chosen here.
  ServerWeightSync(http::ClientConfig server, Weights weights, BroadcastSync::Settings broadcast,
                   double start_seconds = 240.0, std::function<void(const std::string&)> tell = {},
                   std::filesystem::path folder = {});

  Published publish(std::int64_t version);
  // The server was started anew, and may be another one: the next publish chooses again, and sends all.
  void forget();
  // The version that the server has.
  [[nodiscard]] std::function<std::int64_t()> version_source() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

static_assert(SyncPolicy<ServerWeightSync>);

}  // namespace rlalgo::sync

#ifndef RLALGO_COMPILED
#include <rlalgo/sync/detail/server_weight_sync_impl.hpp>
#endif
