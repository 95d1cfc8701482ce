// Weight sync of an adapter through the file system: a PEFT directory that trainer and server both see.
//
//   GET  /health/ until it answers, before the first push
//   write <root>/v<n>.writing, rename it to <root>/v<n>
//   POST /v1/load_lora_adapter {"lora_name": "axolotl-lora", "lora_path", "load_inplace": true}      else, unless 200,
//   POST /set_lora_adapter/    {"lora_name": "active_lora", "lora_int_id", "lora_path"}
//   POST /reset_prefix_cache/  (a server without it is none the worse)
//   remove <root>/v<n−2>
//
// Source: axolotl's vllm-serve client.
// Departures: a directory is complete when its name appears; it outlives its version by one, since a server opens it
// only when the next request comes; ids start at the clock, since servers cache adapters by id, also those of an
// earlier run.
//
// Errors: [rlalgo.sync.2] the server takes adapters on neither path; those of http/json_client.hpp and
// core/atomic_file.hpp.
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

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>

namespace rlalgo::sync {

class LoraFileSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  using Json = nlohmann::ordered_json;
  using Save = std::function<void(const std::filesystem::path& directory)>;  // writes the adapter in force

  // `root` must be the same path for the server. `start_seconds`: how long the first push waits for it to be up.
  LoraFileSync(http::ClientConfig server, std::filesystem::path root, Save save, double start_seconds = 240.0,
               std::function<void(const std::string&)> tell = {})
      : state_(std::make_shared<State>(std::move(server), std::filesystem::absolute(root).lexically_normal(),
                                       std::move(save), start_seconds, std::move(tell))) {}

  // Writes the adapter in force and has the server load it, once per version; `bytes` are of its files.
  Published publish(std::int64_t version) {
    return state_->server.publish(version, [&] { return push(*state_, version); });
  }
  // The version that the server has.
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [state = state_] { return state->server.version; };
  }

 private:
  struct State {
    State(http::ClientConfig address, std::filesystem::path r, Save s, double start_seconds,
          std::function<void(const std::string&)> tell)
        : server(std::move(address), start_seconds, std::move(tell)), root(std::move(r)), save(std::move(s)) {}
    detail::ServerVersion server;
    std::filesystem::path root;
    Save save;
    std::int64_t first_id =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count() %
        1'000'000'000;
    std::int64_t pushes = 0;
    std::filesystem::path current, before;  // directories that the server may read
  };

  static std::int64_t push(State& state, std::int64_t version) {
    const std::filesystem::path directory = write(state, version);
    const std::int64_t id = state.first_id + ++state.pushes;
    load(state, directory, id);
    const http::Result reset = post(state, "/reset_prefix_cache/", Json::object());
    if (!reset.ok() && reset.response().status != 404)
      core::raise("sync", 2,
                  {.what = "the server does not forget its cached prefixes",
                   .found = http::JsonClient::described(reset.response()),
                   .where = state.server.client.base_url() + "/reset_prefix_cache/"});
    if (!state.before.empty() && state.before != directory) std::filesystem::remove_all(state.before);
    state.before = std::exchange(state.current, directory);
    std::int64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory))
      if (file.is_regular_file()) bytes += static_cast<std::int64_t>(file.file_size());
    return bytes;
  }

  static std::filesystem::path write(const State& state, std::int64_t version) {
    const std::filesystem::path directory = state.root / ("v" + std::to_string(version));
    const std::filesystem::path unfinished = directory.string() + ".writing";
    std::error_code error;
    std::filesystem::remove_all(unfinished, error);
    std::filesystem::create_directories(unfinished, error);
    if (error) core::raise_file_error("cannot create the directory", unfinished, error.value());
    state.save(unfinished);
    std::filesystem::remove_all(directory, error);  // of a run that was resumed from before it
    std::filesystem::rename(unfinished, directory, error);
    if (error) core::raise_file_error("cannot rename the directory", unfinished, error.value());
    return directory;
  }

  // An answer of any status, with a body of any kind.
  static http::Result post(State& state, const std::string& path, const Json& body) {
    return state.server.client.ask(path, body);
  }

  static void load(State& state, const std::filesystem::path& directory, std::int64_t id) {
    const std::string path = directory.string();
    const http::Result first = post(state, "/v1/load_lora_adapter",
                                    {{"lora_name", "axolotl-lora"}, {"lora_path", path}, {"load_inplace", true}});
    if (first.ok()) return;
    const http::Result second =
        post(state, "/set_lora_adapter/", {{"lora_name", "active_lora"}, {"lora_int_id", id}, {"lora_path", path}});
    if (second.ok()) return;
    core::raise(
        "sync", 2,
        {.what = "the server takes no adapters",
         .found = http::JsonClient::described(first.response()) + " at /v1/load_lora_adapter; " +
                  http::JsonClient::described(second.response()) + " at /set_lora_adapter/",
         .where = state.server.client.base_url(),
         .remedy = "serve with `axolotl vllm-serve` and trl.vllm_lora_sync: true, or train without an adapter"});
  }

  std::shared_ptr<State> state_;
};

static_assert(SyncPolicy<LoraFileSync>);

}  // namespace rlalgo::sync
