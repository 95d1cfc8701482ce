// Weight sync over plain HTTP: the tensors themselves, in groups; to rlalgo's own server on this machine in a file.
//
//   GET  /health/                   until it answers, before the first push
// rlalgo's own server: a session, after which the new weights are in force all at once under the trainer's version:
//   POST /start_weight_update       {"session"}
//   POST /update_weights            a safetensors file (application/octet-stream) with "session" in its metadata, or
//                                   {"update_info": {"path"}, "session"}
//   POST /finish_weight_update      {"weight_version": "v7", "session"}
// axolotl's:
//   POST /http_update_weights/      {"params": [{"name", "dtype", "shape", "data"}, …]}
//   POST /reset_prefix_cache/
//
// A file is written where a folder for it is given and the server's address is of this machine, and removed when it has
// been read. A server that does not read it gets HTTP from then on.
//
// publish(v) pushes, once per version. A group ends before the next tensor would pass 10 MiB; a larger tensor goes
// alone. In a session tensors are of their own type; to axolotl's server f32 in base64 (little endian, C order), which it
// reads as such whatever `dtype` says: bfloat16 survives exactly (axolotl's own client sends it as float16, which
// overflows beyond 65504). The session's name lets each call be repeated when its answer is lost.
//
// Errors: [rlalgo.sync.1] the server takes no weights over HTTP; [rlalgo.sync.8] another trainer's update stays open;
// those of http/json_client.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <rlalgo/http/json_client.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sync {

class HttpWeightSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  static constexpr Hooks hooks{.forget = true};
  using Json = nlohmann::ordered_json;
  // The weights in force, under the names the server's model knows them by; made one at a time.
  using Weights = std::function<model::PendingTensors()>;

  static constexpr std::int64_t group_bytes = 10LL << 20;

  // `start_seconds`: how long the first push waits for the server to be up, and each for another trainer's to end; `tell`
  // hears that it does. `folder`: of the file; empty: none is written.
  HttpWeightSync(http::ClientConfig server, Weights weights, double start_seconds = 240.0,
                 std::function<void(const std::string&)> tell = {}, std::filesystem::path folder = {});

  // Sends the weights in force, once per version; `bytes` are of tensors, before base64.
  Published publish(std::int64_t version);
  // The server was started anew: the next publish waits for it and sends all again.
  void forget() { state_->server.forget(); }
  // The version that the server has.
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [state = state_] { return state->server.version; };
  }

 private:
  struct State {
    State(http::ClientConfig address, Weights w, double start_seconds, std::function<void(const std::string&)> t)
        : server(std::move(address), start_seconds, t), weights(std::move(w)), tell(std::move(t)) {}
    detail::ServerVersion server;
    Weights weights;
    std::function<void(const std::string&)> tell;
    std::string session;         // this trainer's, on servers that tell trainers apart
    std::filesystem::path file;  // empty: over HTTP
  };

  static std::int64_t push(State& state, std::int64_t version);
  static std::int64_t push_session(State& state, std::int64_t version);
  // Nothing where the server does not read the file.
  static std::optional<std::int64_t> push_file(State& state);
  static std::int64_t push_params(State& state);
  // Calls add(what it is, values on the wire) of each, and send() after each group; the bytes.
  template <class Add, class Send>
  static std::int64_t in_groups(State& state, at::ScalarType (*type_on_wire)(at::ScalarType), const Add& add,
                                const Send& send);

  [[noreturn]] static void takes_none(const State& state, const std::string& found);
  static std::string base64_of(const tensor::Tensor& plain);

  std::shared_ptr<State> state_;
};

static_assert(SyncPolicy<HttpWeightSync>);

}  // namespace rlalgo::sync

#ifndef RLALGO_COMPILED
#include <rlalgo/sync/detail/http_weight_sync_impl.hpp>
#endif
