// Both orders of broadcasts: against rlalgo's own server, over Gloo and over a NCCL that is none, and against servers that
// stop half-way.
#include <rlalgo/sync/broadcast_sync.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/serve/engine.hpp>
#include <rlalgo/serve/server.hpp>
#include <rlalgo/serve/weight_store.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/http_server.hpp>
#include <support/not_run.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using distributed::Store;
using sync::BroadcastSync;
using Json = BroadcastSync::Json;
using Order = BroadcastSync::Order;
using Transport = BroadcastSync::Transport;
using Tensors = std::vector<std::pair<std::string, tensor::Tensor>>;

namespace {

constexpr double seconds = 20.0;

// That a NCCL is there.
struct Libraries {
  support::Environment nccl{"RLALGO_NCCL_LIBRARY", support::fake_nccl};
  support::Environment cudart{"RLALGO_CUDART_LIBRARY", support::fake_nccl};
};

std::uint16_t free_port() { return Store::listen("127.0.0.1", 0).port(); }

http::ClientConfig client_of(const std::string& url, std::stop_token stop = {}) {
  return {
      .base_url = url, .connect_seconds = 2, .call_seconds = 30, .retries = {.retries = 0}, .stop = std::move(stop)};
}

struct Bench {
  std::uint16_t port;
  std::unique_ptr<serve::GenerationServer> server;

  explicit Bench(std::uint64_t seed = 4, std::uint16_t at = 0) : port(at) {
    serve::ServerConfig config;
    config.http.port = port;
    config.engine.engine.threads = 1;
    config.broadcast_seconds = seconds;
    server = std::make_unique<serve::GenerationServer>(served::model(seed), std::move(config));
    port = static_cast<std::uint16_t>(std::stoi(server->url().substr(server->url().rfind(':') + 1)));
  }
  // A digest of each tensor's bytes.
  [[nodiscard]] Json digests() const {
    return http::JsonClient(client_of(server->url())).post("/weight_checker", {{"action", "checksum"}})["checksums"];
  }
};

// The tensors of a model of that seed, as a checkpoint names them.
Tensors tensors_of(std::uint64_t seed) {
  const auto decoder = served::decoder(seed);
  serve::Engine engine(decoder->config(), {.engine = {.threads = 1}}, {});
  return serve::WeightStore(decoder, engine).named_tensors();
}

BroadcastSync::Settings settings(Transport transport, Order order) {
  return {.transport = transport, .order = order, .group_port = free_port(), .seconds = seconds, .packed_bytes = 4000};
}

template <class F>
std::string said(const F& act, std::string* told = nullptr) {
  try {
    act();
  } catch (const os::Interrupted& error) {
    return "interrupted " + error.room() + "." + std::to_string(error.number());
  } catch (const core::Error& error) {
    if (told != nullptr) *told = error.what();
    return error.room() + "." + std::to_string(error.number());
  }
  return {};
}

}  // namespace

TEST_CASE("weights come to rlalgo's server to the bit, in both orders and over both transports") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  const Json nine = Bench(9).digests(), four = Bench(4).digests();
  REQUIRE(nine != four);
  for (const Transport transport : {Transport::gloo, Transport::nccl})
    for (const Order order : {Order::trl, Order::vllm})
      for (const bool lists : {true, false}) {
        CAPTURE(static_cast<int>(transport), static_cast<int>(order), lists);
        Bench bench;
        BroadcastSync::Settings chosen = settings(transport, order);
        chosen.lists = lists;
        if (!lists) chosen.packed_bytes = std::size_t{1} << 30U;
        std::uint64_t seed = 9;
        BroadcastSync policy(
            client_of(bench.server->url()), [&] { return tensors_of(seed); }, chosen);
        const auto version = policy.version_source();
        CHECK(version() == -1);
        const sync::Published published = policy.publish(7);
        CHECK(published.status == sync::Published::Status::sent);
        std::int64_t bytes = 0;
        for (const auto& [name, value] : tensors_of(9)) bytes += static_cast<std::int64_t>(value.nbytes());
        CHECK(published.bytes == bytes);
        CHECK(version() == 7);
        CHECK(bench.digests() == nine);
        CHECK(policy.publish(7).status == sync::Published::Status::unchanged);
        seed = 4;
        CHECK(policy.publish(8).bytes == bytes);  // in the same group
        CHECK(bench.digests() == four);
        const Json info = http::JsonClient(client_of(bench.server->url())).get("/weight_info");
        if (order == Order::vllm) CHECK(info["weight_version"] == "v8");
      }
}

TEST_CASE("tensors of 16 bits travel as they are") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  Tensors halves = tensors_of(9);
  std::int64_t bytes = 0;
  for (auto& [name, value] : halves) {
    value = value.to(name.find("norm") == std::string::npos ? at::kBFloat16 : at::kHalf);
    bytes += static_cast<std::int64_t>(value.nbytes());
  }
  BroadcastSync policy(
      client_of(bench.server->url()), [&] { return halves; }, settings(Transport::gloo, Order::vllm));
  CHECK(policy.publish(1).bytes == bytes);
  CHECK(bench.digests() != Bench(9).digests());
  for (auto& [name, value] : halves) value = value.to(at::kFloat);
  BroadcastSync again(
      client_of(bench.server->url()), [&] { return halves; }, settings(Transport::gloo, Order::trl));
  const Json before = bench.digests();
  again.publish(2);
  CHECK(bench.digests() == before);
}

TEST_CASE("what the server refuses ends at once with its own words, and the next update is whole") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  for (const Transport transport : {Transport::gloo, Transport::nccl})
    for (const Order order : {Order::trl, Order::vllm}) {
      CAPTURE(static_cast<int>(transport), static_cast<int>(order));
      Bench bench;
      const Json before = bench.digests();
      Tensors tensors = tensors_of(9);
      const tensor::Tensor good = tensors.back().second;
      tensors.back().second = at::ones({3, 3000000});  // more than a socket takes while nobody reads
      BroadcastSync policy(
          client_of(bench.server->url()), [&] { return tensors; }, settings(transport, order));
      const os::Stopwatch watch;
      std::string told;
      CHECK(said([&] { policy.publish(1); }, &told) == "http.2");
      CHECK(told.find("serve.19") != std::string::npos);
      CHECK(watch.seconds() < seconds / 2);
      CHECK(bench.digests() == before);
      CHECK(policy.version_source()() == -1);
      tensors.back().second = good;
      policy.publish(2);
      CHECK(bench.digests() == Bench(9).digests());
      // In a group that stood: tried again in a new one, and refused again.
      tensors.back().second = at::ones({2});
      CHECK(said([&] { policy.publish(3); }, &told) == "http.2");
      CHECK(told.find("serve.19") != std::string::npos);
      CHECK(bench.digests() == Bench(9).digests());
      CHECK(watch.seconds() < seconds);
    }
}

TEST_CASE("a server that was started anew is met anew") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  for (const Transport transport : {Transport::gloo, Transport::nccl})
    for (const Order order : {Order::trl, Order::vllm}) {
      CAPTURE(static_cast<int>(transport), static_cast<int>(order));
      std::uint16_t port = 0;
      std::vector<std::string> told;
      std::unique_ptr<BroadcastSync> policy;
      {
        Bench bench;
        port = bench.port;
        policy = std::make_unique<BroadcastSync>(
            client_of(bench.server->url()), [] { return tensors_of(9); }, settings(transport, order), seconds,
            [&](const std::string& line) { told.push_back(line); });
        policy->publish(1);
      }
      Bench second(4, port);
      policy->publish(2);
      CHECK(second.digests() == Bench(9).digests());
      REQUIRE(!told.empty());
      CHECK(told[0].find("in a new group") != std::string::npos);
      policy->forget();
      CHECK(policy->version_source()() == -1);
      policy->publish(2);
      CHECK(second.digests() == Bench(9).digests());
    }
}

namespace {

// A server that lists routes and knows the trainer's half only; what it does with an act is the test's.
struct Imitation {
  std::string paths, version;
  std::function<std::pair<int, std::string>(const std::string&, const Json&)> act;
  support::HttpServer server{[this](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
    if (path == "/health/") return {200, ""};
    if (path == "/openapi.json") return {200, paths};
    if (path == "/version") return {200, version};
    if (path.starts_with("/get_world_size")) return {200, R"({"world_size": 1})"};
    return act(path, body.empty() ? Json() : Json::parse(body));
  }};

  [[nodiscard]] std::vector<std::string> asked() const {
    std::vector<std::string> out;
    for (const auto& [path, body] : server.seen())
      if (path != "/health/" && path != "/openapi.json" && path != "/version") out.push_back(path);
    return out;
  }
};

const char* const vllm_paths = R"({"paths": {"/init_weight_transfer_engine": {}, "/start_weight_update": {},
  "/update_weights": {}, "/finish_weight_update": {}, "/pause": {}, "/resume": {}, "/reset_prefix_cache": {}}})";

// The one worker of a vLLM server.
struct Worker {
  Transport transport = Transport::nccl;
  std::unique_ptr<distributed::ProcessGroup> group;
  Json info;
  std::string bytes;

  void meet(const Json& init) {
    info = init;
    const Store store = Store::connect(init["master_address"], init["master_port"], init["world_size"], seconds);
    group = transport == Transport::gloo
                ? join_gloo(store, init["rank_offset"], init["world_size"], seconds)
                : join_nccl(store, support::fake_library(), init["rank_offset"], init["world_size"], seconds);
  }
  void receive(std::int64_t size) {
    tensor::Tensor buffer = at::empty({size}, at::kByte);
    group->broadcast(buffer, 0, seconds);
    bytes.append(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes());
  }
};

const Tensors three = {{"a", at::arange(6, at::kFloat).view({2, 3})},
                       {"b", at::ones({5}, at::kBFloat16)},
                       {"c", at::full({1}, 2.0, at::kFloat)}};

std::string bytes_of(const Tensors& tensors) {
  std::string out;
  for (const auto& [name, value] : tensors)
    out.append(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
  return out;
}

}  // namespace

// Buffers of 24 bytes: "a" fills one and does not pass it, "b" does; "c" is the rest.
TEST_CASE("vLLM's acts come in its order, packed as its version has it") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  for (const bool older : {false, true}) {
    Worker worker;
    Json start, update, finish;
    Imitation imitation{.paths = vllm_paths,
                        .version = older ? R"({"version": "0.22.1"})" : R"({"version": "0.32.0"})"};
    imitation.act = [&](const std::string& path, const Json& body) -> std::pair<int, std::string> {
      if (path == "/init_weight_transfer_engine") worker.meet(body["init_info"]);
      if (path == "/start_weight_update") start = body;
      if (path == "/finish_weight_update") finish = body;
      if (path == "/update_weights") {
        update = body["update_info"];
        worker.receive(34);
        worker.receive(4);
      }
      return {200, R"({"success": true})"};
    };
    BroadcastSync policy(client_of(imitation.server.url()), [] { return three; },
                         {.group_port = 0, .seconds = seconds, .packed_bytes = 24});
    CHECK(policy.publish(3).bytes == 38);
    CHECK(worker.bytes == bytes_of(three));
    CHECK(imitation.asked() == std::vector<std::string>{"/get_world_size?include_dp=true",
                                                        "/init_weight_transfer_engine", "/pause?mode=keep",
                                                        "/start_weight_update", "/update_weights",
                                                        "/finish_weight_update", "/reset_prefix_cache", "/resume"});
    CHECK(worker.info["rank_offset"] == 1);
    CHECK(worker.info["world_size"] == 2);
    CHECK(!worker.info.contains("backend"));
    const Json& packing = older ? update : worker.info;
    CHECK(packing["packed"] == true);
    CHECK(packing["packed_buffer_size_bytes"] == 24);
    CHECK((older ? worker.info : update).contains("packed") == false);
    CHECK(start == (older ? Json{{"is_checkpoint_format", true}} : Json::object()));
    CHECK(finish == (older ? Json::object() : Json{{"weight_version", "v3"}}));
    CHECK(update["names"] == Json{"a", "b", "c"});
    CHECK(update["dtype_names"] == Json{"float32", "bfloat16", "float32"});
    CHECK(update["shapes"] == Json::parse("[[2, 3], [5], [1]]"));
    worker.bytes.clear();
    CHECK(policy.publish(4).bytes == 38);
    CHECK(worker.bytes == bytes_of(three));
    CHECK(imitation.asked().size() == 8 + 6);
  }
}

TEST_CASE("a vLLM server that refuses half-way is resumed, and nobody waits for its broadcast") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  for (const std::string refusing :
       {"/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update"}) {
    CAPTURE(refusing);
    Worker worker;
    Imitation imitation{.paths = vllm_paths, .version = R"({"version": "0.32.0"})"};
    imitation.act = [&](const std::string& path, const Json& body) -> std::pair<int, std::string> {
      if (path == refusing) return {500, R"({"detail": "no room"})"};
      if (path == "/init_weight_transfer_engine") worker.meet(body["init_info"]);
      if (path == "/update_weights") worker.receive(38);
      return {200, "{}"};
    };
    BroadcastSync policy(client_of(imitation.server.url()), [] { return three; },
                         {.group_port = 0, .seconds = seconds});
    const os::Stopwatch watch;
    std::string told;
    CHECK(said([&] { policy.publish(1); }, &told) == "http.2");
    CHECK(told.find("no room") != std::string::npos);
    CHECK(told.find(refusing) != std::string::npos);
    CHECK(watch.seconds() < seconds / 2);
    if (refusing != "/init_weight_transfer_engine") CHECK(imitation.asked().back() == "/resume");
  }
}

TEST_CASE("a server that says yes and does nothing is given up at the deadline, or when calls are") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  std::promise<void> end;
  const std::shared_future<void> over = end.get_future().share();
  Worker worker;
  Imitation imitation{.paths = vllm_paths, .version = R"({"version": "0.32.0"})"};
  std::atomic<int> silent = 0;  // requests
  imitation.act = [&](const std::string& path, const Json& body) -> std::pair<int, std::string> {
    if (path == "/init_weight_transfer_engine") worker.meet(body["init_info"]);
    if (path == "/update_weights") {
      ++silent;
      over.wait_for(std::chrono::seconds(4));
    }
    return {200, "{}"};
  };
  const os::Stopwatch watch;
  std::string told;
  {
    BroadcastSync policy(client_of(imitation.server.url()), [] { return three; }, {.group_port = 0, .seconds = 2});
    CHECK(said([&] { policy.publish(1); }, &told) == "sync.9");
    CHECK(told.find("not done in time") != std::string::npos);
    CHECK(watch.seconds() < 15);
  }
  std::stop_source stop;
  BroadcastSync policy(client_of(imitation.server.url(), stop.get_token()), [] { return three; },
                       {.group_port = 0, .seconds = seconds});
  auto published = std::async(std::launch::async, [&] { return said([&] { policy.publish(1); }); });
  for (const os::Stopwatch waited; silent < 2 && waited.seconds() < seconds;)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(published.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout);
  const os::Stopwatch stopped;
  stop.request_stop();
  CHECK(published.get() == "interrupted sync.10");
  CHECK(stopped.seconds() < 10);
  end.set_value();

  // TRL's server answers before its worker has done anything.
  Imitation trl{.paths = R"({"paths": {"/init_communicator/": {}, "/update_named_param/": {}}})", .version = "{}"};
  trl.act = [](const std::string&, const Json&) -> std::pair<int, std::string> { return {200, "{}"}; };
  BroadcastSync alone(client_of(trl.server.url()), [] { return three; }, {.group_port = free_port(), .seconds = 0.5});
  const os::Stopwatch later;
  CHECK(said([&] { alone.publish(1); }, &told) == "sync.9");
  CHECK(told.find("could not be reached") != std::string::npos);
  CHECK(later.seconds() < 10);
}

TEST_CASE("what TRL's worker is told, by tensor or by axolotl's list") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Libraries libraries;
  for (const bool lists : {false, true}) {
    const std::uint16_t port = free_port();
    std::future<std::string> worker;
    std::vector<std::pair<std::string, Json>> acts;
    Imitation imitation{.paths = std::string(R"({"paths": {"/init_communicator/": {}, "/update_named_param/": {})") +
                                 (lists ? R"(, "/batch_update_named_params/": {}}})" : "}}"),
                        .version = "{}"};
    imitation.act = [&](const std::string& path, const Json& body) -> std::pair<int, std::string> {
      acts.emplace_back(path, body);
      if (path == "/init_communicator/")
        worker = std::async(std::launch::async, [&, port] {
          const Store store = Store::listen("127.0.0.1", port);
          const auto group = join_nccl(store, support::fake_library(), 0, 2, seconds);
          std::string out;
          for (int i = 0; i < 3; ++i) {
            tensor::Tensor place = at::empty(three[i].second.sizes(), three[i].second.options());
            group->broadcast(place, 1, seconds);
            out.append(static_cast<const char*>(place.const_data_ptr()), place.nbytes());
            if (!lists || i == 2) group->barrier(seconds);
          }
          return out;
        });
      return {200, "{}"};
    };
    BroadcastSync policy(client_of(imitation.server.url()), [] { return three; },
                         {.group_port = port, .seconds = seconds});
    CHECK(policy.publish(1).bytes == 38);
    CHECK(worker.get() == bytes_of(three));
    REQUIRE(acts.size() == (lists ? 3 : 5));
    CHECK(acts[0].second == Json{{"host", "0.0.0.0"},
                                 {"port", port},
                                 {"world_size", 2},
                                 {"client_device_uuid", "00112233-4455-6677-8899-aabbccddeeff"}});
    const Json b = {{"name", "b"}, {"dtype", "torch.bfloat16"}, {"shape", {5}}};
    CHECK((lists ? acts[1].second["params"][1] : acts[2].second) == b);
    CHECK(acts.back().first == "/reset_prefix_cache/");
  }
}

TEST_CASE("a server without such routes, one that does not say its size, and no NCCL here, before anything is begun") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Imitation none{.paths = R"({"paths": {}})", .version = R"({"version": "0.9.0"})"};
  none.act = [](const std::string&, const Json&) -> std::pair<int, std::string> { return {404, "{}"}; };
  BroadcastSync gloo(client_of(none.server.url()), [] { return three; },
                     {.transport = Transport::gloo, .group_port = 0, .seconds = seconds});
  std::string told;
  CHECK(said([&] { gloo.publish(1); }, &told) == "sync.1");
  CHECK(told.find("vLLM 0.9.0") != std::string::npos);

  Imitation without{.paths = vllm_paths, .version = R"({"version": "0.32.0"})"};
  without.act = [](const std::string&, const Json&) -> std::pair<int, std::string> { return {200, "{}"}; };
  const support::Environment missing("RLALGO_NCCL_LIBRARY", "/nowhere/libnccl.so.2"),
      cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  BroadcastSync nccl(client_of(without.server.url()), [] { return three; }, {.group_port = 0, .seconds = seconds});
  CHECK(said([&] { nccl.publish(1); }) == "distributed.15");
  CHECK(without.asked().empty());
}
