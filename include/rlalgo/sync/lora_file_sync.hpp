// Weight sync of an adapter through the file system: a PEFT directory that trainer and server both see.
//
//   GET  /health/ until it answers, before the first push
//   write <root>/v<n>.writing, rename it to <root>/v<n>
//   POST /v1/load_lora_adapter {"lora_name": "axolotl-lora", "lora_path", "load_inplace": true}      else, unless 200,
//   POST /set_lora_adapter/    {"lora_name": "active_lora", "lora_int_id", "lora_path"}
//   POST /reset_prefix_cache/  (a server without it is none the worse)
//   POST /update_weight_version {"new_version": "v7"}: rlalgo's own server, whose completions then say so
//   remove <root>/v<n−2>
//
// Source: axolotl's vllm-serve client.
// Departures: a directory is complete when its name appears; it outlives its version by one, since a server opens it
// only when the next request comes; ids start at the clock, since servers cache adapters by id, also those of an
// earlier run.
//
// Errors: [rlalgo.sync.2] the server takes adapters on neither path; those of http/json_client.hpp and
// os/atomic_file.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>

namespace rlalgo::sync {

class LoraFileSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  static constexpr Hooks hooks{.forget = true};
  using Json = nlohmann::ordered_json;
  static constexpr const char* adapter_name = "axolotl-lora";                // axolotl's, where a server knows several
  using Save = std::function<void(const std::filesystem::path& directory)>;  // writes the adapter in force

  // `root` must be the same path for the server. `start_seconds`: how long the first push waits for it to be up.
  LoraFileSync(http::ClientConfig server, std::filesystem::path root, Save save, double start_seconds = 240.0,
               std::function<void(const std::string&)> tell = {});

  // Writes the adapter in force and has the server load it, once per version; `bytes` are of its files.
  Published publish(std::int64_t version);
  // The server was started anew: the next publish waits for it and sends all again.
  void forget() { state_->server.forget(); }
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

  static std::int64_t push(State& state, std::int64_t version);

  static std::filesystem::path write(const State& state, std::int64_t version);

  // An answer of any status, with a body of any kind.
  static http::Result post(State& state, const std::string& path, const Json& body);

  static void load(State& state, const std::filesystem::path& directory, std::int64_t id);

  std::shared_ptr<State> state_;
};

static_assert(SyncPolicy<LoraFileSync>);

}  // namespace rlalgo::sync

#ifndef RLALGO_COMPILED
#include <rlalgo/sync/detail/lora_file_sync_impl.hpp>
#endif
