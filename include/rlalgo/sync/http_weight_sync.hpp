// Weight sync over plain HTTP: the tensors themselves, in groups, to a server that takes `/http_update_weights/`
// (axolotl's vllm-serve, rlalgo's own).
//
//   GET  /health/                until it answers, before the first push
//   POST /http_update_weights/   {"params": [{"name", "dtype", "shape", "data"}, …]}; data: base64, little endian, C order
//   POST /reset_prefix_cache/
//
// publish(v) pushes, once per version. A group ends before the next tensor would pass 10 MiB; a
// larger tensor goes alone. Values travel as f32, which those servers read as such whatever `dtype` says: bfloat16
// survives exactly (axolotl's own client sends it as float16, which overflows beyond 65504).
//
// Errors: [rlalgo.sync.1] the server has no such endpoint; those of http/json_client.hpp.
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
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

class HttpWeightSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  using Json = nlohmann::ordered_json;
  // The weights in force, under the names the server's model knows them by.
  using Weights = std::function<std::vector<std::pair<std::string, tensor::Tensor>>()>;

  static constexpr std::int64_t group_bytes = 10LL << 20;

  // `start_seconds`: how long the first push waits for the server to be up.
  HttpWeightSync(http::ClientConfig server, Weights weights, double start_seconds = 240.0,
                 std::function<void(const std::string&)> tell = {})
      : state_(std::make_shared<State>(std::move(server), std::move(weights), start_seconds, std::move(tell))) {}

  // Sends the weights in force, once per version; `bytes` are of tensors, before base64.
  Published publish(std::int64_t version) {
    return state_->server.publish(version, [&] { return push(*state_); });
  }
  // The version that the server has.
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [state = state_] { return state->server.version; };
  }

 private:
  struct State {
    State(http::ClientConfig address, Weights w, double start_seconds, std::function<void(const std::string&)> tell)
        : server(std::move(address), start_seconds, std::move(tell)), weights(std::move(w)) {}
    detail::ServerVersion server;
    Weights weights;
  };

  static std::int64_t push(State& state) {
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

  static std::string dtype_name(at::ScalarType type) {
    return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
  }

  std::shared_ptr<State> state_;
};

static_assert(SyncPolicy<HttpWeightSync>);

}  // namespace rlalgo::sync
