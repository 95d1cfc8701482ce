// Definitions of http_weight_sync.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/http/served_routes.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/sync/detail/weight_session.hpp>
#include <rlalgo/sync/detail/wire_type.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

namespace detail {

inline bool of_this_machine(const std::string& url) {
  const std::size_t begin = url.find("://") + 3;
  const std::string host = url.substr(begin, url.find_first_of(":/", begin) - begin);
  return host.starts_with("127.") || host == "localhost" || url.compare(begin, 5, "[::1]") == 0;
}

// A file that is gone when its time is over; its folder, too, where nothing else is in it.
struct RemovedAtEnd {
  const std::filesystem::path& file;
  ~RemovedAtEnd() {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    const std::filesystem::path folder = file.parent_path();
    if (std::filesystem::symlink_status(folder, ignored).type() == std::filesystem::file_type::directory)
      std::filesystem::remove(folder, ignored);
  }
};

}  // namespace detail

RLALGO_INLINE HttpWeightSync::HttpWeightSync(http::ClientConfig server, Weights weights, double start_seconds,
                                             std::function<void(const std::string&)> tell, std::filesystem::path folder)
    : state_(std::make_shared<State>(std::move(server), std::move(weights), start_seconds, std::move(tell))) {
  state_->session = detail::random_name();
  if (!folder.empty() && detail::of_this_machine(state_->server.client.base_url()))
    state_->file = std::filesystem::absolute(folder).lexically_normal() / (state_->session + ".safetensors");
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
  for (const model::PendingTensor& one : state.weights()) {
    const tensor::Tensor plain = one.make().detach().to(at::kCPU, type_on_wire(one.dtype)).contiguous();
    const auto size = static_cast<std::int64_t>(plain.nbytes());
    if (bytes + size > group_bytes) end_group();
    add(one, plain);
    bytes += size;
    sent += size;
  }
  end_group();
  return sent;
}

RLALGO_INLINE std::int64_t HttpWeightSync::push_session(State& state, std::int64_t version) {
  http::JsonClient& client = state.server.client;
  detail::begin_session(state.server, state.session, state.tell);
  const auto finish = [&] {
    client.post("/finish_weight_update",
                {{"weight_version", detail::ServerVersion::name_of(version)}, {"session", state.session}});
  };
  if (const auto sent = push_file(state)) {
    finish();
    return *sent;
  }
  std::vector<model::NamedTensor> group;
  const std::int64_t sent = in_groups(
      state, detail::wire_type,
      [&](const model::PendingTensor& one, const tensor::Tensor& plain) { group.emplace_back(one.name, plain); },
      [&] {
        client.post_bytes("/update_weights", model::safetensors_bytes(group, {{"session", state.session}}));
        group.clear();
      });
  finish();
  return sent;
}

RLALGO_INLINE std::optional<std::int64_t> HttpWeightSync::push_file(State& state) {
  if (state.file.empty()) return std::nullopt;
  std::string why;
  try {
    model::PendingTensors tensors = state.weights();
    std::int64_t bytes = 0;
    for (model::PendingTensor& one : tensors) {
      one.dtype = detail::wire_type(one.dtype);
      one.make = [make = std::move(one.make), dtype = one.dtype] { return make().detach().to(at::kCPU, dtype); };
      bytes += static_cast<std::int64_t>(one.bytes());
    }
    const detail::RemovedAtEnd removed{state.file};
    std::error_code ignored;  // what cannot be written to is an error of the writing
    std::filesystem::create_directories(state.file.parent_path(), ignored);
    model::write_pending_safetensors(state.file, std::move(tensors));
    const http::Result result = state.server.client.ask(
        "/update_weights", {{"update_info", {{"path", state.file.string()}}}, {"session", state.session}});
    if (result.ok()) return bytes;
    if (result.response().status >= 500)
      http::JsonClient::refuse(result, "POST " + state.server.client.base_url() + "/update_weights");
    why = http::JsonClient::described(result.response());
  } catch (const core::Error& error) {
    if (error.room() == "http" || error.room() == "distributed") throw;
    why = error.what();
  }
  if (state.tell) state.tell("weights go to the server over HTTP, not in " + state.file.string() + ": " + why);
  state.file.clear();
  return std::nullopt;
}

RLALGO_INLINE std::int64_t HttpWeightSync::push_params(State& state) {
  http::JsonClient& client = state.server.client;
  Json group = Json::array();
  const std::int64_t sent = in_groups(
      state, [](at::ScalarType) { return at::kFloat; },
      [&](const model::PendingTensor& one, const tensor::Tensor& plain) {
        group.push_back({{"name", one.name},
                         {"dtype", "torch." + detail::type_name(one.dtype)},
                         {"shape", one.shape},
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

}  // namespace rlalgo::sync
