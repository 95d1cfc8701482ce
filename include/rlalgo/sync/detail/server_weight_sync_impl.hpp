// Definitions of server_weight_sync.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/http/served_routes.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/broadcast_sync.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>
#include <rlalgo/sync/server_weight_sync.hpp>

namespace rlalgo::sync {

struct ServerWeightSync::State {
  http::ClientConfig server;
  Weights weights;
  BroadcastSync::Settings settings;
  double start_seconds;
  std::function<void(const std::string&)> tell;
  std::filesystem::path folder;

  std::optional<AnySync> chosen;
  std::int64_t version = -1;

  [[nodiscard]] AnySync choose() const {
    http::JsonClient client(server);
    detail::ServerVersion::wait(client, start_seconds, tell);
    static constexpr std::array<std::string_view, 1> in_question = {"/http_update_weights/"};
    const http::ServedRoutes routes(client, in_question);
    if (routes.is_rlalgo() ? !asks_for_gloo(client) : routes.may_have("/http_update_weights/")) return over_http();
    BroadcastSync::Settings broadcast = settings;
    broadcast.transport = routes.is_rlalgo() ? BroadcastSync::Transport::gloo : BroadcastSync::Transport::nccl;
    if (broadcast.transport == BroadcastSync::Transport::nccl) {
      if (!routes.has("/init_weight_transfer_engine") && !routes.has("/init_communicator/")) return over_http();
      require_nccl(routes.described());
    }
    return AnySync(BroadcastSync(server, weights, broadcast, start_seconds, tell));
  }

  [[nodiscard]] AnySync over_http() const {
    return AnySync(HttpWeightSync(server, weights, start_seconds, tell, folder));
  }

  // Of rlalgo's own server: the backend that it was started with.
  [[nodiscard]] static bool asks_for_gloo(http::JsonClient& client) {
    using Json = http::JsonClient::Json;
    const Json info = client.get("/server_info");
    const Json backend = info.value(Json::json_pointer("/vllm_config/weight_transfer_config/backend"), Json());
    return backend == "gloo" && distributed::gloo_built();
  }

  void require_nccl(const std::string& described) const {
    const std::string trouble = distributed::nccl_trouble();
    if (trouble.empty()) return;
    core::raise("sync", 1,
                {.what = "the server takes weights over NCCL only, which is not to be had here",
                 .found = described + ", and " + trouble,
                 .where = server.base_url,
                 .remedy = "train on a machine with an NVIDIA GPU and NCCL; or serve with `rlalgo vllm-serve`, or with "
                           "`axolotl vllm-serve` and vllm.worker_extension_cls: "
                           "axolotl.scripts.vllm_worker_ext.BatchWeightSyncWorkerExtension, which take weights over "
                           "HTTP; vLLM also takes adapters from files (trl.vllm_lora_sync)"});
  }
};

RLALGO_INLINE ServerWeightSync::ServerWeightSync(http::ClientConfig server, Weights weights,
                                                 BroadcastSync::Settings broadcast, double start_seconds,
                                                 std::function<void(const std::string&)> tell,
                                                 std::filesystem::path folder)
    : state_(std::make_shared<State>(State{.server = std::move(server),
                                           .weights = std::move(weights),
                                           .settings = broadcast,
                                           .start_seconds = start_seconds,
                                           .tell = std::move(tell),
                                           .folder = std::move(folder)})) {}

RLALGO_INLINE Published ServerWeightSync::publish(std::int64_t version) {
  if (!state_->chosen) state_->chosen = state_->choose();
  const Published out = state_->chosen->publish(version);
  state_->version = out.version;
  return out;
}

RLALGO_INLINE void ServerWeightSync::forget() {
  state_->chosen.reset();
  state_->version = -1;
}

RLALGO_INLINE std::function<std::int64_t()> ServerWeightSync::version_source() const {
  return [state = state_] { return state->version; };
}

}  // namespace rlalgo::sync
