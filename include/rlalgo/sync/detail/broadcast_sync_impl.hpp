// Definitions of broadcast_sync.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/http/served_routes.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sync/broadcast_sync.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/detail/server_version.hpp>
#include <rlalgo/sync/detail/weight_session.hpp>
#include <rlalgo/sync/detail/wire_type.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::sync {

namespace detail {

struct HostPort {
  std::string host;
  std::uint16_t port = 80;
};

// Of an address that a Client has taken.
inline HostPort host_of(const std::string& url) {
  const std::size_t begin = url.find("://") + 3;
  std::string place = url.substr(begin, url.find('/', begin) - begin);
  HostPort out;
  const std::size_t colon = place.rfind(':');
  if (colon != std::string::npos && place.find(']', colon) == std::string::npos) {
    out.port = static_cast<std::uint16_t>(std::stoi(place.substr(colon + 1)));
    place.resize(colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  out.host = place;
  return out;
}

// Whether a server of vLLM's learns how an update is packed when it is met, rather than with each.
inline bool packed_at_meeting(const std::string& described) {
  int major = 0, minor = 0;
  return std::sscanf(described.c_str(), "vLLM %d.%d", &major, &minor) != 2 || major > 0 || minor >= 28;
}

}  // namespace detail

struct BroadcastSync::State {
  using Tensors = model::PendingTensors;

  State(http::ClientConfig address, Weights w, Settings s, double start_seconds,
        std::function<void(const std::string&)> t)
      : server(address, start_seconds, t),
        acts(once(std::move(address))),
        stop(acts_config.stop),
        weights(std::move(w)),
        settings(s),
        tell(std::move(t)),
        session(detail::random_name()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    try {
      if (group && order() == Order::trl) (void)acts.ask("/close_communicator/", Json::object(), {.seconds = 2.0});
    } catch (const std::exception&) {  // the server forgets it without that, too
    }
  }

  http::ClientConfig acts_config;
  detail::ServerVersion server;
  http::JsonClient acts;  // tried once: a broadcast belongs to each
  std::stop_token stop;
  Weights weights;
  Settings settings;
  std::function<void(const std::string&)> tell;
  std::string session;                                      // this trainer's, on rlalgo's own server
  std::shared_ptr<const distributed::NcclLibrary> library;  // with NCCL
  std::unique_ptr<distributed::ProcessGroup> group;
  std::mutex group_mutex;  // of the pointer, for stop_group()
  int root = 0;            // this process
  bool forgotten = false;  // the server may still have the communicator of before

  const http::ClientConfig& once(http::ClientConfig address) {
    acts_config = std::move(address);
    acts_config.retries.retries = 0;
    return acts_config;
  }

  [[nodiscard]] bool gloo() const { return settings.transport == Transport::gloo; }
  [[nodiscard]] const http::ServedRoutes& routes() const { return server.routes(); }
  [[nodiscard]] std::string url() const { return server.client.base_url(); }

  [[nodiscard]] Order order() const {
    if (settings.order) return *settings.order;
    if (routes().has("/init_weight_transfer_engine")) return Order::vllm;
    if (routes().has("/init_communicator/")) return Order::trl;
    core::raise(
        "sync", 1,
        {.what = "the server takes no weights by broadcast",
         .found = routes().described() + " with neither /init_weight_transfer_engine nor /init_communicator/",
         .where = url(),
         .remedy = "start vLLM with VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config '{\"backend\": \"nccl\"}'"});
  }

  void stop_group() {
    const std::lock_guard lock(group_mutex);
    if (group) group->stop();
  }
  void set_group(std::unique_ptr<distributed::ProcessGroup> next) {
    const std::lock_guard lock(group_mutex);
    group = std::move(next);
  }

  // POST `path` while act() runs, which shares the wait with the server; `refused()` ends act() where the server
  // refuses. Whichever failed first is what is reported; an act that fails gives the server's own answer a moment.
  template <class Act>
  void while_asking(const std::string& path, const Json& body, const std::function<void()>& refused, const Act& act) {
    std::stop_source cancel;
    const std::stop_callback passed_on(stop, [&] { cancel.request_stop(); });
    std::exception_ptr refusal, failure;
    std::atomic<bool> answered = false;
    std::thread post([&] {
      try {
        const http::Result result = acts.ask(path, body, {.stop = cancel.get_token()});
        if (!result.ok()) http::JsonClient::refuse(result, "POST " + url() + path);
      } catch (...) {
        refusal = std::current_exception();
        refused();
      }
      answered = true;
    });
    try {
      act();
    } catch (...) {
      failure = std::current_exception();
      for (const os::Stopwatch waited; !answered && waited.seconds() < 2.0;)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (!answered) {
        cancel.request_stop();
        post.join();
        std::rethrow_exception(failure);
      }
    }
    post.join();
    if (refusal) std::rethrow_exception(refusal);
    if (failure) std::rethrow_exception(failure);
  }

  [[nodiscard]] std::unique_ptr<distributed::ProcessGroup> join(const distributed::Store& store, int rank,
                                                                int size) const {
    if (gloo()) return distributed::join_gloo(store, rank, size, settings.seconds);
    return distributed::join_nccl(store, library, rank, size, settings.seconds, settings.device);
  }

  [[nodiscard]] int workers(const std::string& path) {
    const Json answer = server.client.get(path);
    const auto size = answer.is_object() ? answer.find("world_size") : answer.end();
    if (!answer.is_object() || size == answer.end() || !size->is_number_integer() || *size < 1 || *size > 65535)
      core::raise("sync", 9,
                  {.what = "the server does not say how many workers it has",
                   .found = answer.dump().substr(0, 200),
                   .expected = R"({"world_size": 1})",
                   .where = "GET " + url() + path});
    return size->get<int>();
  }

  void meet_trl() {
    const int size = workers("/get_world_size/") + 1;
    if (std::exchange(forgotten, false)) (void)acts.ask("/close_communicator/", Json::object());
    Json body = {{"host", "0.0.0.0"}, {"port", settings.group_port}, {"world_size", size}};
    body["client_device_uuid"] = gloo() ? std::string("cpu") : library->uuid(settings.device);
    if (gloo()) body["backend"] = "gloo";
    const http::Result result = acts.ask("/init_communicator/", body);
    if (!result.ok()) http::JsonClient::refuse(result, "POST " + url() + "/init_communicator/");
    root = size - 1;
    const auto store =
        distributed::Store::connect(detail::host_of(url()).host, settings.group_port, size, settings.seconds);
    set_group(join(store, root, size));
  }

  // The server gets the port. That of a Gloo group that was given up is free when its operation's time is over:
  // another one does as well.
  [[nodiscard]] distributed::Store listening(const std::string& address) const {
    try {
      return distributed::Store::listen(address, settings.group_port);
    } catch (const core::Error& error) {
      if (!gloo() || error.number() != 2) throw;
      return distributed::Store::listen(address, 0);
    }
  }

  void meet_vllm() {
    const int size = workers("/get_world_size?include_dp=true") + 1;
    root = 0;
    const detail::HostPort there = detail::host_of(url());
    const std::string own = distributed::own_address(there.host, there.port);
    if (own.empty())
      core::raise("sync", 9, {.what = "this machine has no address that the server could reach", .where = url()});
    const auto store = listening(own);
    Json info = {{"master_address", own}, {"master_port", store.port()}, {"rank_offset", 1}, {"world_size", size}};
    if (packed_when_met()) add_packing(info);
    if (gloo()) info["backend"] = "gloo";
    Json body = {{"init_info", std::move(info)}};
    if (routes().is_rlalgo()) body["session"] = session;
    std::atomic<bool> refused = false;
    while_asking(
        "/init_weight_transfer_engine", body, [&] { refused = true; },
        [&] {
          store.wait_for_peer(settings.seconds, [&] { return refused || stop.stop_requested(); });
          set_group(join(store, root, size));
        });
  }

  [[nodiscard]] bool packed_when_met() const { return detail::packed_at_meeting(routes().described()); }
  void add_packing(Json& info) const {
    info["packed"] = true;
    info["packed_buffer_size_bytes"] = settings.packed_bytes;
    info["packed_num_buffers"] = 2;
  }

  // Gloo sends from this machine's memory, NCCL from where a tensor lies.
  [[nodiscard]] tensor::Tensor plain(const model::PendingTensor& one) const {
    const tensor::Tensor value = one.make().detach();
    return value.to(gloo() ? at::Device(at::kCPU) : value.device(), detail::wire_type(one.dtype)).contiguous();
  }
  [[nodiscard]] static std::size_t bytes_on_wire(const model::PendingTensor& one) {
    return one.bytes() / c10::elementSize(one.dtype) * c10::elementSize(detail::wire_type(one.dtype));
  }

  // Of neighbours in `tensors`: [begin, end) is as long as it passes `packed_bytes` with its last one.
  [[nodiscard]] std::size_t end_of_pack(const Tensors& tensors, std::size_t begin, std::size_t& bytes) const {
    bytes = 0;
    while (begin < tensors.size() && bytes <= settings.packed_bytes) {
      bytes += bytes_on_wire(tensors[begin++]);
    }
    return begin;
  }

  std::int64_t push_trl(const Tensors& tensors) {
    const bool batches = settings.lists && (routes().is_rlalgo() || routes().has("/batch_update_named_params/"));
    std::int64_t sent = 0;
    for (std::size_t begin = 0; begin < tensors.size();) {
      std::size_t bytes = 0;
      const std::size_t end = batches ? end_of_pack(tensors, begin, bytes) : begin + 1;
      Json list = Json::array();
      for (std::size_t i = begin; i < end; ++i) {
        const model::PendingTensor& one = tensors[i];
        list.push_back({{"name", one.name},
                        {"dtype", "torch." + detail::type_name(detail::wire_type(one.dtype))},
                        {"shape", one.shape}});
      }
      const std::string path = batches ? "/batch_update_named_params/" : "/update_named_param/";
      const http::Result result = acts.ask(path, batches ? Json{{"params", std::move(list)}} : Json(list[0]));
      if (!result.ok()) http::JsonClient::refuse(result, "POST " + url() + path);
      for (; begin < end; ++begin) {
        tensor::Tensor value = plain(tensors[begin]);
        group->broadcast(value, root, settings.seconds);
        sent += static_cast<std::int64_t>(value.nbytes());
      }
      group->barrier(settings.seconds);
    }
    server.client.post("/reset_prefix_cache/", Json::object());
    return sent;
  }

  std::int64_t broadcast_packed(const Tensors& tensors) {
    std::int64_t sent = 0;
    for (std::size_t begin = 0; begin < tensors.size();) {
      std::size_t bytes = 0;
      const std::size_t end = end_of_pack(tensors, begin, bytes);
      std::vector<tensor::Tensor> parts;
      for (; begin < end; ++begin) parts.push_back(plain(tensors[begin]).view({-1}).view(at::kByte));
      tensor::Tensor buffer = parts.size() == 1 ? parts[0] : concatenated(parts, bytes);
      parts.clear();
      group->broadcast(buffer, root, settings.seconds);
      sent += static_cast<std::int64_t>(bytes);
    }
    return sent;
  }
  // One after the other, on their device.
  [[nodiscard]] static tensor::Tensor concatenated(const std::vector<tensor::Tensor>& parts, std::size_t bytes) {
    tensor::Tensor out = tensor::empty({static_cast<std::int64_t>(bytes)}, parts[0].options());
    std::int64_t at = 0;
    for (const tensor::Tensor& part : parts) {
      out.narrow(0, at, part.numel()).copy_(part);
      at += part.numel();
    }
    return out;
  }

  std::int64_t push_vllm(const Tensors& tensors, std::int64_t version) {
    const bool own = routes().is_rlalgo();
    Json info = {{"names", Json::array()}, {"dtype_names", Json::array()}, {"shapes", Json::array()}};
    for (const model::PendingTensor& one : tensors) {
      info["names"].push_back(one.name);
      info["dtype_names"].push_back(detail::type_name(detail::wire_type(one.dtype)));
      info["shapes"].push_back(one.shape);
    }
    if (!packed_when_met()) add_packing(info);
    Json body = {{"update_info", std::move(info)}}, last = Json::object();
    if (own) body["session"] = last["session"] = session;
    if (own || packed_when_met()) last["weight_version"] = detail::ServerVersion::name_of(version);
    if (!own && routes().has("/start_weight_update"))
      acts.post("/start_weight_update", packed_when_met() ? Json::object() : Json{{"is_checkpoint_format", true}});
    std::int64_t sent = 0;
    while_asking(
        "/update_weights", body, [this] { stop_group(); }, [&] { sent = broadcast_packed(tensors); });
    if (own)
      server.client.post("/finish_weight_update", last);
    else if (routes().has("/finish_weight_update"))
      acts.post("/finish_weight_update", last);
    return sent;
  }

  // A vLLM server stands still meanwhile.
  template <class Push>
  std::int64_t while_paused(const Push& push) {
    if (routes().is_rlalgo() || !routes().has("/pause")) return push();
    server.client.post("/pause?mode=keep", nullptr);
    std::int64_t sent = 0;
    try {
      sent = push();
      server.client.post("/reset_prefix_cache", nullptr);
    } catch (...) {
      try {  // also when calls are given up: other clients of the server wait
        const std::stop_source never;
        (void)acts.ask("/resume", nullptr, {.seconds = 10.0, .stop = never.get_token()});
      } catch (const std::exception& error) {
        if (tell) tell(std::string("the server stays paused: ") + error.what());
      }
      throw;
    }
    server.client.post("/resume", nullptr);
    return sent;
  }

  std::int64_t push_once(std::int64_t version) {
    const Order chosen = order();
    if (chosen == Order::vllm && routes().is_rlalgo()) detail::begin_session(server, session, tell);
    if (!group) chosen == Order::trl ? meet_trl() : meet_vllm();
    const std::stop_callback given_up(stop, [this] { stop_group(); });
    const Tensors tensors = weights();
    if (chosen == Order::trl) return push_trl(tensors);
    return while_paused([&] { return push_vllm(tensors, version); });
  }

  // In a group, every failure is its end. In one that was met before it is tried again, once: the next is a new one.
  std::int64_t push(std::int64_t version) {
    if (!gloo() && !library) library = distributed::NcclLibrary::load();
    for (;;) {
      const bool met = group != nullptr;
      try {
        return push_once(version);
      } catch (const core::Error& error) {
        leave();
        if (stop.stop_requested())
          os::raise_interrupted("sync", 10, {.what = "a broadcast of weights was given up", .where = url()});
        if (!met) explain(error);
        if (tell) tell(std::string("weights are broadcast again, in a new group: ") + error.what());
      } catch (...) {
        leave();
        throw;
      }
    }
  }

  void leave() {
    const bool close = group != nullptr && order() == Order::trl;
    set_group(nullptr);
    if (!close || stop.stop_requested()) return;
    try {
      (void)acts.ask("/close_communicator/", Json::object(), {.seconds = 10.0});
    } catch (const core::Error&) {  // the failure that led here says more
    }
  }

  [[noreturn]] void explain(const core::Error& error) const {
    if (error.room() != "distributed") throw;
    core::raise("sync", 9,
                {.what = "weights could not be broadcast to the server",
                 .found = error.what(),
                 .where = url() + ", " + (gloo() ? "Gloo" : "NCCL") + ", port " + std::to_string(settings.group_port),
                 .remedy = "the server's own log says more; is trl.vllm_group_port open and free?"});
  }
};

RLALGO_INLINE BroadcastSync::BroadcastSync(http::ClientConfig server, Weights weights, Settings settings,
                                           double start_seconds, std::function<void(const std::string&)> tell)
    : state_(std::make_shared<State>(std::move(server), std::move(weights), settings, start_seconds, std::move(tell))) {
}

RLALGO_INLINE Published BroadcastSync::publish(std::int64_t version) {
  return state_->server.publish(version, [&] { return state_->push(version); });
}

RLALGO_INLINE void BroadcastSync::forget() {
  state_->forgotten = state_->group != nullptr;
  state_->set_group(nullptr);
  state_->server.forget();
}

RLALGO_INLINE std::function<std::int64_t()> BroadcastSync::version_source() const {
  return [state = state_] { return state->server.version; };
}

}  // namespace rlalgo::sync
