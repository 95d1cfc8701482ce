// Definitions of lora_file_sync.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/sync/lora_file_sync.hpp>

namespace rlalgo::sync {

RLALGO_INLINE LoraFileSync::LoraFileSync(http::ClientConfig server, std::filesystem::path root, Save save,
                                         double start_seconds, std::function<void(const std::string&)> tell)
    : state_(std::make_shared<State>(std::move(server), std::filesystem::absolute(root).lexically_normal(),
                                     std::move(save), start_seconds, std::move(tell))) {}

RLALGO_INLINE Published LoraFileSync::publish(std::int64_t version) {
  return state_->server.publish(version, [&] { return push(*state_, version); });
}

RLALGO_INLINE std::int64_t LoraFileSync::push(State& state, std::int64_t version) {
  const std::filesystem::path directory = write(state, version);
  const std::int64_t id = state.first_id + ++state.pushes;
  load(state, directory, id);
  const http::Result reset = post(state, "/reset_prefix_cache/", Json::object());
  if (!reset.ok() && reset.response().status != 404)
    core::raise("sync", 2,
                {.what = "the server does not forget its cached prefixes",
                 .found = http::JsonClient::described(reset.response()),
                 .where = state.server.client.base_url() + "/reset_prefix_cache/"});
  if (state.server.routes().is_rlalgo())
    state.server.client.post("/update_weight_version", {{"new_version", detail::ServerVersion::name_of(version)}});
  if (!state.before.empty() && state.before != directory) std::filesystem::remove_all(state.before);
  state.before = std::exchange(state.current, directory);
  std::int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory))
    if (file.is_regular_file()) bytes += static_cast<std::int64_t>(file.file_size());
  return bytes;
}

RLALGO_INLINE std::filesystem::path LoraFileSync::write(const State& state, std::int64_t version) {
  const std::filesystem::path directory = state.root / ("v" + std::to_string(version));
  const std::filesystem::path unfinished = directory.string() + ".writing";
  std::error_code error;
  std::filesystem::remove_all(unfinished, error);
  std::filesystem::create_directories(unfinished, error);
  if (error) os::raise_file_error("cannot create the directory", unfinished, error.value());
  state.save(unfinished);
  std::filesystem::remove_all(directory, error);  // of a run that was resumed from before it
  std::filesystem::rename(unfinished, directory, error);
  if (error) os::raise_file_error("cannot rename the directory", unfinished, error.value());
  return directory;
}

RLALGO_INLINE http::Result LoraFileSync::post(State& state, const std::string& path, const Json& body) {
  return state.server.client.ask(path, body);
}

RLALGO_INLINE void LoraFileSync::load(State& state, const std::filesystem::path& directory, std::int64_t id) {
  const std::string path = directory.string();
  const http::Result first =
      post(state, "/v1/load_lora_adapter", {{"lora_name", adapter_name}, {"lora_path", path}, {"load_inplace", true}});
  if (first.ok()) return;
  const http::Result second =
      post(state, "/set_lora_adapter/", {{"lora_name", "active_lora"}, {"lora_int_id", id}, {"lora_path", path}});
  if (second.ok()) return;
  core::raise("sync", 2,
              {.what = "the server takes no adapters",
               .found = http::JsonClient::described(first.response()) + " at /v1/load_lora_adapter; " +
                        http::JsonClient::described(second.response()) + " at /set_lora_adapter/",
               .where = state.server.client.base_url(),
               .remedy = "serve with `axolotl vllm-serve` and trl.vllm_lora_sync: true, or train without an adapter"});
}

}  // namespace rlalgo::sync
