// Definitions of http_weight_sync.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

RLALGO_INLINE HttpWeightSync::HttpWeightSync(http::ClientConfig server, Weights weights, double start_seconds,
                                             std::function<void(const std::string&)> tell)
    : state_(std::make_shared<State>(std::move(server), std::move(weights), start_seconds, std::move(tell))) {}

RLALGO_INLINE Published HttpWeightSync::publish(std::int64_t version) {
  return state_->server.publish(version, [&] { return push(*state_); });
}

RLALGO_INLINE std::int64_t HttpWeightSync::push(State& state) {
  http::JsonClient& client = state.server.client;
  Json group = Json::array();
  std::int64_t bytes = 0, sent = 0;
  const auto send = [&] {
    if (group.empty()) return;
    const http::Result result = client.ask("/http_update_weights/", {{"params", std::move(group)}});
    if (result.response().status == 404)
      core::raise("sync", 1,
                  {.what = "the server takes no weights over HTTP",
                   .found = "HTTP 404",
                   .where = client.base_url() + "/http_update_weights/",
                   .remedy = "serve with `axolotl vllm-serve` and vllm.worker_extension_cls: "
                             "axolotl.scripts.vllm_worker_ext.BatchWeightSyncWorkerExtension; "
                             "`trl vllm-serve` takes weights over NCCL only"});
    if (!result.ok()) http::JsonClient::refuse(result, "POST " + client.base_url() + "/http_update_weights/");
    group = Json::array();
    bytes = 0;
  };
  for (const auto& [name, value] : state.weights()) {
    const tensor::Tensor plain = value.detach().to(at::kCPU, at::kFloat).contiguous();
    const auto size = static_cast<std::int64_t>(plain.nbytes());
    if (bytes + size > group_bytes) send();
    group.push_back(
        {{"name", name},
         {"dtype", "torch." + dtype_name(value.scalar_type())},
         {"shape", value.sizes().vec()},
         {"data", core::base64({static_cast<const unsigned char*>(plain.const_data_ptr()), plain.nbytes()})}});
    bytes += size;
    sent += size;
  }
  send();
  client.post("/reset_prefix_cache/", Json::object());
  return sent;
}

RLALGO_INLINE std::string HttpWeightSync::dtype_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
}

}  // namespace rlalgo::sync
