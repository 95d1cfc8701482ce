// Definitions of http_weight_sync.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
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
#include <rlalgo/http/served_routes.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

namespace detail {

inline std::string random_name() {
  std::random_device source;
  const std::uint64_t bits = (std::uint64_t{source()} << 32U) | source();
  std::string out = "trainer-";
  for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[(bits >> static_cast<unsigned>(shift)) & 15U];
  return out;
}

}  // namespace detail

RLALGO_INLINE HttpWeightSync::HttpWeightSync(http::ClientConfig server, Weights weights, double start_seconds,
                                             std::function<void(const std::string&)> tell)
    : state_(std::make_shared<State>(std::move(server), std::move(weights), start_seconds, std::move(tell))) {
  state_->session = detail::random_name();
}

RLALGO_INLINE Published HttpWeightSync::publish(std::int64_t version) {
  return state_->server.publish(version, [&] { return push(*state_, version); });
}

RLALGO_INLINE std::int64_t HttpWeightSync::push(State& state, std::int64_t version) {
  const http::ServedRoutes& routes = state.server.routes();
  if (routes.is_rlalgo() && routes.has("/start_weight_update")) return push_session(state, version);
  if (routes.may_have("/http_update_weights/")) return push_params(state);
  takes_none(state, routes.described() + " without /http_update_weights/");
}

RLALGO_INLINE void HttpWeightSync::takes_none(const State& state, const std::string& found) {
  core::raise("sync", 1,
              {.what = "the server takes no weights over HTTP",
               .found = found,
               .where = state.server.client.base_url() + "/http_update_weights/",
               .remedy = "serve with `rlalgo vllm-serve`, or with `axolotl vllm-serve` and vllm.worker_extension_cls: "
                         "axolotl.scripts.vllm_worker_ext.BatchWeightSyncWorkerExtension; `trl vllm-serve` and vLLM "
                         "take weights over NCCL only, and vLLM adapters from files (trl.vllm_lora_sync)"});
}

template <class Add, class Send>
std::int64_t HttpWeightSync::in_groups(State& state, at::ScalarType (*type_on_wire)(at::ScalarType), const Add& add,
                                       const Send& send) {
  std::int64_t bytes = 0, sent = 0;
  const auto end_group = [&] {
    if (bytes > 0) send();
    bytes = 0;
  };
  for (const auto& [name, value] : state.weights()) {
    const tensor::Tensor plain = value.detach().to(at::kCPU, type_on_wire(value.scalar_type())).contiguous();
    const auto size = static_cast<std::int64_t>(plain.nbytes());
    if (bytes + size > group_bytes) end_group();
    add(name, value, plain);
    bytes += size;
    sent += size;
  }
  end_group();
  return sent;
}

RLALGO_INLINE std::int64_t HttpWeightSync::push_session(State& state, std::int64_t version) {
  http::JsonClient& client = state.server.client;
  client.post("/start_weight_update", {{"session", state.session}});
  Json info;
  const auto clear = [&] {
    info = {
        {"names", Json::array()}, {"dtype_names", Json::array()}, {"shapes", Json::array()}, {"data", Json::array()}};
  };
  clear();
  const std::int64_t sent = in_groups(
      state, [](at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf ? type : at::kFloat; },
      [&](const std::string& name, const tensor::Tensor& /*value*/, const tensor::Tensor& plain) {
        info["names"].push_back(name);
        info["dtype_names"].push_back(dtype_name(plain.scalar_type()));
        info["shapes"].push_back(plain.sizes().vec());
        info["data"].push_back(base64_of(plain));
      },
      [&] {
        client.post("/update_weights", {{"update_info", std::move(info)}, {"session", state.session}});
        clear();
      });
  client.post("/finish_weight_update",
              {{"weight_version", detail::ServerVersion::name_of(version)}, {"session", state.session}});
  return sent;
}

RLALGO_INLINE std::int64_t HttpWeightSync::push_params(State& state) {
  http::JsonClient& client = state.server.client;
  Json group = Json::array();
  const std::int64_t sent = in_groups(
      state, [](at::ScalarType) { return at::kFloat; },
      [&](const std::string& name, const tensor::Tensor& value, const tensor::Tensor& plain) {
        group.push_back({{"name", name},
                         {"dtype", "torch." + dtype_name(value.scalar_type())},
                         {"shape", value.sizes().vec()},
                         {"data", base64_of(plain)}});
      },
      [&] {
        const http::Result result = client.ask("/http_update_weights/", {{"params", std::move(group)}});
        if (result.response().status == 404) takes_none(state, "HTTP 404");
        if (!result.ok()) http::JsonClient::refuse(result, "POST " + client.base_url() + "/http_update_weights/");
        group = Json::array();
      });
  client.post("/reset_prefix_cache/", Json::object());
  return sent;
}

RLALGO_INLINE std::string HttpWeightSync::base64_of(const tensor::Tensor& plain) {
  return core::base64({static_cast<const unsigned char*>(plain.const_data_ptr()), plain.nbytes()});
}

RLALGO_INLINE std::string HttpWeightSync::dtype_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
}

}  // namespace rlalgo::sync
