// Trainers that broadcast weights, as HTTP clients: what TRL's and vLLM's do, over Gloo.
#include <rlalgo/serve/server.hpp>

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/weight_store.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/not_run.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using distributed::Store;
using serve::Json;

namespace {

constexpr double seconds = 20.0;

struct Bench {
  serve::GenerationServer server;
  http::Client client;
  std::uint16_t port = Store::listen("127.0.0.1", 0).port();

  explicit Bench(const char* backend = "gloo", double patience = seconds)
      : server(served::model(), config(backend, patience)),
        client({.base_url = server.url(), .call_seconds = 40, .retries = {.retries = 0}}) {}

  static serve::ServerConfig config(const char* backend, double patience) {
    serve::ServerConfig out;
    out.http.port = 0;
    out.engine.engine.threads = 1;
    out.broadcast_backend = backend;
    out.broadcast_seconds = patience;
    return out;
  }
  [[nodiscard]] http::Response post(const std::string& target, const Json& body) {
    http::Client own({.base_url = server.url(), .call_seconds = 40, .retries = {.retries = 0}});
    return own.call({.method = "POST", .target = target, .body = body.dump()}).response();
  }
  // "200", or the number of the error.
  [[nodiscard]] std::string said(const std::string& target, const Json& body = Json::object()) {
    const http::Response answer = post(target, body);
    if (answer.status == 200) return "200";
    const auto at = answer.body.find("[rlalgo.") + 8;
    return answer.body.substr(at, answer.body.find(']') - at);
  }
  [[nodiscard]] std::string greedy() {
    const auto answer = post("/generate/", {{"prompts", {{40, 41, 42}}}, {"max_tokens", 6}, {"temperature", 0}});
    REQUIRE(answer.status == 200);
    return Json::parse(answer.body)["completion_ids"].dump();
  }
};

// The tensors of another model of the same shape, as a checkpoint names them.
std::vector<std::pair<std::string, tensor::Tensor>> others() {
  const auto decoder = served::decoder(9);
  serve::Engine engine(decoder->config(), {.engine = {.threads = 1}}, {});
  std::vector<std::pair<std::string, tensor::Tensor>> out;
  for (const auto& [name, value] : serve::WeightStore(decoder, engine).named_tensors())
    out.emplace_back(name, value.detach().contiguous());
  return out;
}

}  // namespace

TEST_CASE("a server without NCCL broadcasts with nobody that does not speak Gloo, and says what to do") {
  const support::Environment nccl("RLALGO_NCCL_LIBRARY", "/nowhere/libnccl.so.2"),
      cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  Bench bench("nccl");
  const Json trl = {{"host", "0.0.0.0"}, {"port", bench.port}, {"world_size", 2}, {"client_device_uuid", "x"}};
  const Json vllm = {
      {"init_info", {{"master_address", "127.0.0.1"}, {"master_port", 1}, {"rank_offset", 1}, {"world_size", 2}}}};
  CHECK(bench.said("/init_communicator/", trl) == "serve.12");
  CHECK(bench.said("/init_weight_transfer_engine", vllm) == "serve.12");
  if (distributed::gloo_built())
    CHECK(bench.post("/init_communicator/", trl).body.find("/nowhere/libnccl.so.2") != std::string::npos);
  const Json info = Json::parse(bench.client.call({.method = "GET", .target = "/server_info"}).response().body);
  CHECK(info["vllm_config"]["weight_transfer_config"].is_null());
}

TEST_CASE("TRL's acts over HTTP: communicator, parameters, fence") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  const std::string before = bench.greedy();
  const Json meeting = {{"host", "0.0.0.0"}, {"port", bench.port}, {"world_size", 2}, {"client_device_uuid", "x"}};
  const Json norm = {
      {"name", "model.norm.weight"}, {"dtype", "torch.float32"}, {"shape", {served::decoder()->config().hidden_size}}};
  CHECK(bench.said("/update_named_param/", norm) == "serve.20");
  for (const auto& [name, wrong] :
       {std::pair<const char*, Json>{"port", 0}, {"port", 70000}, {"port", "x"}, {"world_size", 3}}) {
    Json bad = meeting;
    bad[name] = wrong;
    CHECK(bench.said("/init_communicator/", bad).starts_with("serve."));
  }
  REQUIRE(bench.said("/init_communicator/", meeting) == "200");
  CHECK(bench.said("/init_communicator/", meeting) == "serve.20");
  auto trainer = join_gloo(Store::connect("127.0.0.1", bench.port, 2, seconds), 1, 2, seconds);
  Json bad = norm;
  bad["dtype"] = "torch.int8";
  CHECK(bench.said("/update_named_param/", bad) == "serve.19");
  bad = norm;
  bad["shape"] = {-1};
  CHECK(bench.said("/update_named_param/", bad) == "serve.19");
  Json list = Json::array();
  const auto tensors = others();
  for (const auto& [name, value] : tensors) {
    const Json one = {{"name", name}, {"dtype", "torch.float32"}, {"shape", value.sizes().vec()}};
    list.push_back(one);
    REQUIRE(bench.said("/update_named_param/", one) == "200");
    tensor::Tensor sent = value;
    trainer->broadcast(sent, 1, seconds);
    trainer->barrier(seconds);
  }
  const std::string after = bench.greedy();
  CHECK(after != before);
  CHECK(bench.said("/reset_prefix_cache/") == "200");
  CHECK(bench.greedy() == after);

  // axolotl's list, of which half is broadcast before the trainer is gone.
  REQUIRE(bench.said("/batch_update_named_params/", {{"params", list}}) == "200");
  for (std::size_t i = 0; i < tensors.size() / 2; ++i) {
    tensor::Tensor sent = tensors[i].second * 3;
    trainer->broadcast(sent, 1, seconds);
  }
  trainer.reset();
  CHECK(bench.said("/close_communicator/", nullptr) == "200");
  CHECK(bench.greedy() == after);
}

TEST_CASE("vLLM's acts over HTTP: the trainer has the store, nothing changes before the end") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  const std::string before = bench.greedy();
  const Store store = Store::listen("127.0.0.1", 0);
  const Json meeting = {{"init_info",
                         {{"master_address", "127.0.0.1"},
                          {"master_port", store.port()},
                          {"rank_offset", 1},
                          {"world_size", 2},
                          {"packed", true},
                          {"packed_buffer_size_bytes", 1 << 30},
                          {"packed_num_buffers", 2}}}};
  auto met = std::async(std::launch::async, [&] { return bench.said("/init_weight_transfer_engine", meeting); });
  const auto trainer = join_gloo(store, 0, 2, seconds);
  REQUIRE(met.get() == "200");
  Json names = Json::array(), types = Json::array(), shapes = Json::array();
  tensor::Tensor buffer = at::empty({0}, at::kByte);
  for (const auto& [name, value] : others()) {
    names.push_back(name);
    types.push_back("float32");
    shapes.push_back(value.sizes().vec());
    buffer = at::cat({buffer, value.view({-1}).view(at::kByte)});
  }
  const Json lists = {{"update_info", {{"names", names}, {"dtype_names", types}, {"shapes", shapes}}}};
  CHECK(bench.said("/update_weights", lists) == "serve.20");
  REQUIRE(bench.said("/start_weight_update") == "200");
  Json bad = lists;
  bad["update_info"]["shapes"].erase(0);
  CHECK(bench.said("/update_weights", bad) == "serve.3");
  auto updated = std::async(std::launch::async, [&] { return bench.said("/update_weights", lists); });
  trainer->broadcast(buffer, 0, seconds);
  REQUIRE(updated.get() == "200");
  CHECK(bench.greedy() == before);
  REQUIRE(bench.said("/finish_weight_update", {{"weight_version", "v2"}}) == "200");
  const std::string after = bench.greedy();
  CHECK(after != before);

  // Half a buffer: the session is over, and what had come is not in force.
  REQUIRE(bench.said("/start_weight_update") == "200");
  auto broken = std::async(std::launch::async, [&] { return bench.said("/update_weights", lists); });
  tensor::Tensor half = buffer.narrow(0, 0, buffer.numel() / 2).clone();
  trainer->broadcast(half, 0, seconds);
  CHECK(broken.get() == "serve.27");
  CHECK(bench.said("/finish_weight_update") == "serve.20");
  CHECK(bench.greedy() == after);
}

TEST_CASE("with NCCL both orders are spoken without being named, and a trainer that stops is given up") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const support::Environment nccl("RLALGO_NCCL_LIBRARY", support::fake_nccl),
      cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  const auto library = support::fake_library();
  Bench bench("nccl", 3.0);
  const std::string before = bench.greedy();
  const Json info = Json::parse(bench.client.call({.method = "GET", .target = "/server_info"}).response().body);
  CHECK(info["vllm_config"]["weight_transfer_config"]["backend"] == "nccl");

  const Json meeting = {{"host", "0.0.0.0"}, {"port", bench.port}, {"world_size", 2}, {"client_device_uuid", "x"}};
  REQUIRE(bench.said("/init_communicator/", meeting) == "200");
  auto trainer = join_nccl(Store::connect("127.0.0.1", bench.port, 2, seconds), library, 1, 2, seconds);
  const auto tensors = others();
  for (const auto& [name, value] : tensors) {
    REQUIRE(bench.said("/update_named_param/",
                       {{"name", name}, {"dtype", "torch.float32"}, {"shape", value.sizes().vec()}}) == "200");
    tensor::Tensor sent = value;
    trainer->broadcast(sent, 1, seconds);
    trainer->barrier(seconds);
  }
  const std::string after = bench.greedy();
  CHECK(after != before);
  // One that announces and says nothing.
  REQUIRE(bench.said("/update_named_param/", {{"name", "model.norm.weight"},
                                              {"dtype", "torch.float32"},
                                              {"shape", {served::decoder()->config().hidden_size}}}) == "200");
  CHECK(bench.said("/reset_prefix_cache/") == "serve.27");
  CHECK(bench.greedy() == after);

  const Store store = Store::listen("127.0.0.1", 0);
  const Json theirs = {
      {"init_info",
       {{"master_address", "127.0.0.1"}, {"master_port", store.port()}, {"rank_offset", 1}, {"world_size", 2}}}};
  auto met = std::async(std::launch::async, [&] { return bench.said("/init_weight_transfer_engine", theirs); });
  const auto first = join_nccl(store, library, 0, 2, seconds);
  REQUIRE(met.get() == "200");
  const tensor::Tensor norm = at::full({served::decoder()->config().hidden_size}, -3.0, at::kBFloat16);
  const Json update = {{"update_info",
                        {{"names", {"model.norm.weight"}},
                         {"dtype_names", {"bfloat16"}},
                         {"shapes", {{served::decoder()->config().hidden_size}}}}}};
  REQUIRE(bench.said("/start_weight_update") == "200");
  auto updated = std::async(std::launch::async, [&] { return bench.said("/update_weights", update); });
  tensor::Tensor sent = norm;
  first->broadcast(sent, 0, seconds);
  REQUIRE(updated.get() == "200");
  REQUIRE(bench.said("/finish_weight_update") == "200");
  CHECK(bench.greedy() != after);
}
