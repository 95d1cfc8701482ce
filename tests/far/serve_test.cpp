// A generation server whose model lies on a device that the host may not touch.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/inference/memory_share.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/serve/server.hpp>
#include <rlalgo/sync/broadcast_sync.hpp>

#include <serve/served.hpp>
#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/not_run.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using Json = nlohmann::ordered_json;

namespace {

struct Served {
  serve::GenerationServer server;
  http::Client client;

  // 1 MB of keys and values, unless another number or a share of the device is asked for.
  Served(const std::filesystem::path& model, at::Device device, const std::filesystem::path& allowed,
         std::size_t cache_bytes = 1'000'000, double memory_fraction = 0.0,
         std::function<void(const std::string&)> tell = {})
      : server(on(model, device), {.http = {.port = 0},
                                   .engine = {.engine = {.max_slots = 8, .cache_bytes = cache_bytes}},
                                   .memory_fraction = memory_fraction,
                                   .allowed_paths = {allowed},
                                   .tell = std::move(tell)}),
        client({.base_url = server.url(), .call_seconds = 30, .retries = {.retries = 0}}) {}

  static serve::ServedModel on(const std::filesystem::path& model, at::Device device) {
    serve::ServedModel out = served::model();
    out.decoder = model::load_decoder(model, {.device = device});
    return out;
  }

  Json post(const std::string& target, const Json& body, int status = 200) {
    const http::Response answer = client
                                      .call({.method = "POST",
                                             .target = target,
                                             .headers = {{"Content-Type", "application/json"}},
                                             .body = body.dump()})
                                      .response();
    INFO(target << ": " << answer.body);
    CHECK(answer.status == status);
    return Json::parse(answer.body, nullptr, false);
  }

  Json ids(const std::string& model = "tiny") {
    return post("/v1/completions", {{"model", model},
                                    {"prompt", {5, 6, 7, 8}},
                                    {"max_tokens", 12},
                                    {"temperature", 0},
                                    {"ignore_eos", true},
                                    {"return_token_ids", true}})["choices"][0]["token_ids"];
  }
};

}  // namespace

TEST_CASE("a server on a device answers as the CPU's, before and after its weights and adapters change") {
  const support::ScratchDirectory scratch;
  model::save_decoder(*served::decoder(), scratch.path() / "model", {});
  served::write_adapter(scratch.path() / "v0", 1);
  Served cpu(scratch.path() / "model", at::kCPU, scratch.path()),
      far(scratch.path() / "model", support::far::device(), scratch.path());
  const auto before = support::far::counts();
  const Json plain = cpu.ids();
  CHECK(plain.size() == 12);
  CHECK(far.ids() == plain);
  CHECK(support::far::counts().since(before).operators > 100);

  for (Served* one : {&cpu, &far})
    one->post("/v1/load_lora_adapter", {{"lora_name", "v0"}, {"lora_path", (scratch.path() / "v0").string()}});
  const Json adapted = cpu.ids("v0");
  CHECK(adapted != plain);
  CHECK(far.ids("v0") == adapted);

  const auto norm = served::decoder()->weights().final_norm.detach().mul(-3).contiguous();
  const Json tensor = {{"name", "model.norm.weight"},
                       {"dtype", "torch.float32"},
                       {"shape", norm.sizes().vec()},
                       {"data", core::base64({reinterpret_cast<const unsigned char*>(norm.const_data_ptr<float>()),
                                              static_cast<std::size_t>(norm.numel()) * 4})}};
  for (Served* one : {&cpu, &far}) one->post("/http_update_weights/", {{"params", {tensor}}});
  const Json updated = cpu.ids();
  CHECK(updated != plain);
  CHECK(far.ids() == updated);
  CHECK(far.ids("v0") == cpu.ids("v0"));
  const Json question = {{"action", "checksum"}};
  CHECK(far.post("/weight_checker", question)["checksums"] == cpu.post("/weight_checker", question)["checksums"]);
}

TEST_CASE("weights that come over NCCL arrive in the device's memory, and leave it as they are") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const support::ScratchDirectory scratch;
  model::save_decoder(*served::decoder(), scratch.path() / "model", {});
  model::save_decoder(*served::decoder(9), scratch.path() / "trained", {});
  const at::Device device = support::far::device();
  const Json before = Served(scratch.path() / "model", at::kCPU, scratch.path()).ids(),
             after = Served(scratch.path() / "trained", at::kCPU, scratch.path()).ids();
  REQUIRE(before != after);

  const support::Environment nccl("RLALGO_NCCL_LIBRARY", support::fake_nccl),
      cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  support::access_through([](void (*task)(void*), void* given) { support::far::reach([&] { task(given); }); });
  const auto trained = model::load_decoder(scratch.path() / "trained", {.device = device});
  std::int64_t weights = 0;
  for (const model::Parameter& p : trained->parameters()) weights += static_cast<std::int64_t>(p.value.nbytes());
  for (const auto order : {sync::BroadcastSync::Order::trl, sync::BroadcastSync::Order::vllm}) {
    CAPTURE(static_cast<int>(order));
    Served far(scratch.path() / "model", device, scratch.path());
    CHECK(far.ids() == before);
    sync::BroadcastSync policy(
        {.base_url = far.server.url(), .call_seconds = 30, .retries = {.retries = 0}},
        [&] {
          model::PendingTensors out;
          for (const model::Parameter& p : trained->parameters())
            out.push_back(model::pending(*trained, p.name, p.value));
          return out;
        },
        {.order = order, .group_port = distributed::Store::listen("127.0.0.1", 0).port(), .seconds = 20.0});
    const auto counted = support::far::counts();
    CHECK(policy.publish(1).bytes == weights);
    const auto counts = support::far::counts().since(counted);
    CHECK(counts.bytes_in + counts.bytes_out < weights / 10);
    CHECK(far.ids() == after);
  }
  support::access_through(nullptr);
}

TEST_CASE("a server takes its share of the device, says so, and refuses at once what does not fit into it") {
  const support::ScratchDirectory scratch;
  model::save_decoder(*served::decoder(), scratch.path() / "model", {});
  std::string told;
  const auto with = [&](double total, double fraction) {
    support::far::set_memory(static_cast<std::size_t>(total));
    told.clear();
    auto out = std::make_unique<Served>(scratch.path() / "model", support::far::device(), scratch.path(), 0, fraction,
                                        [&](const std::string& line) { told += line + "\n"; });
    support::far::set_memory(0);
    return out;
  };
  {
    const auto wide = with(40e6, 0.9);
    CHECK(wide->ids().size() == 12);
    CHECK(told.find("far:0: 40 MB") != std::string::npos);
    CHECK(told.find("are refused") == std::string::npos);
    // The memory goes back while it sleeps, and comes again.
    const Json before = wide->ids();
    const std::size_t held = support::far::held_bytes();
    wide->post("/sleep", Json::object());
    CHECK(support::far::held_bytes() + 1'000'000 < held);
    wide->post("/wake_up", Json::object());
    CHECK(wide->ids() == before);
  }
  // Of a few pages: the model's longest request does not fit.
  const auto decoder = served::decoder();
  const inference::EngineConfig engine =
      inference::EngineConfig{.max_slots = 8, .prefill_rows = inference::prefill_rows_of(support::far::device())}
          .for_weights(decoder->weights());
  const inference::MemoryShare share =
      inference::memory_share(decoder->config(), decoder->weights(), engine, 1.0, served::model().length_limit());
  const double bare = share.weights + share.passes;
  {
    const auto few = with((bare + 4.5 * static_cast<double>(share.page_bytes)) / 0.5, 0.5);
    CHECK(told.find("longer requests than that are refused") != std::string::npos);
    const Json answer = few->post("/v1/completions", {{"model", "tiny"}, {"prompt", {5, 6}}, {"max_tokens", 100}}, 400);
    CHECK(answer.dump().find("inference.10") != std::string::npos);
    CHECK(answer.dump().find("--gpu-memory-utilization") != std::string::npos);
    CHECK(few->ids().size() == 12);
  }
  CHECK(support::lacks(support::raised_by([&] { (void)with(bare / 0.5, 0.5); }),
                       {"serve.32", "far:0", "--gpu-memory-utilization"}) == "");
  support::far::set_memory(0);
}

TEST_CASE(
    "a launch that fails is named with its shape and stream and ends the requests that it had; the server goes on") {
  const support::far::WithKernels kernels;
  const support::ScratchDirectory scratch;
  model::save_decoder(*served::decoder(), scratch.path() / "model", {});
  Served far(scratch.path() / "model", support::far::device(), scratch.path());
  const Json body = {{"model", "tiny"}, {"prompt", {5, 6, 7, 8}}, {"max_tokens", 12}, {"ignore_eos", true}};
  const Json before = far.ids();
  for (const int good : {0, 5, 40}) {
    support::far::fail_launch(good);
    const std::string answer = far.post("/v1/completions", body, 500).dump();
    CHECK(support::lacks(answer, {"serve.15", "tensor.15", "too many resources requested for launch", "CUDA error 701",
                                  "] on far:0, stream 0", "the CUDA kernel "}) == "");
    CHECK(far.ids() == before);
  }
  support::far::fail_allocation();
  CHECK(support::lacks(far.post("/v1/completions", body, 500).dump(),
                       {"serve.15", "tensor.14", "Tried to allocate", "--gpu-memory-utilization", "far:0"}) == "");
  CHECK(far.ids() == before);
}

TEST_CASE(
    "a device that computes nothing any more ends all work and takes none; its server says so and is not healthy") {
  const support::far::WithKernels kernels;
  const support::ScratchDirectory scratch;
  model::save_decoder(*served::decoder(), scratch.path() / "model", {});
  Served far(scratch.path() / "model", support::far::device(), scratch.path());
  (void)far.ids();
  // What fails and is mended is no end.
  support::far::fail_launch();
  const Json body = {{"model", "tiny"}, {"prompt", {5, 6, 7, 8}}, {"max_tokens", 12}, {"ignore_eos", true}};
  CHECK(far.post("/v1/completions", body, 500).dump().find("serve.15") != std::string::npos);
  const auto health = [&] { return far.client.call({.method = "GET", .target = "/health"}).response().status; };
  CHECK(health() == 200);
  CHECK_FALSE(far.server.failure());

  support::far::set_broken(true);
  const std::string first = far.post("/v1/completions", body, 500).dump();
  CHECK(support::lacks(first, {"illegal memory access"}) == "");
  for (int i = 0; i < 100 && !far.server.failure(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(far.server.failure());
  CHECK(support::lacks(far.server.failure()->what(),
                       {"serve.33", "illegal memory access", "far:0", "start the server again"}) == "");
  CHECK(health() == 503);
  CHECK(far.post("/v1/completions", body, 503).dump().find("serve.33") != std::string::npos);
  served::write_adapter(scratch.path() / "v0", 1);
  CHECK(far.post("/v1/load_lora_adapter", {{"lora_name", "v0"}, {"lora_path", (scratch.path() / "v0").string()}}, 503)
            .dump()
            .find("serve.33") != std::string::npos);
  far.server.stop(0.0);
  support::far::set_broken(false);
}

TEST_CASE("a request for whose keys and values there is no memory ends alone, and the next one has it") {
  const support::ScratchDirectory scratch;
  model::save_decoder(*served::decoder(), scratch.path() / "model", {});
  Served far(scratch.path() / "model", support::far::device(), scratch.path());
  support::far::fail_allocation();
  const Json body = {{"model", "tiny"}, {"prompt", {9, 9, 9, 9}}, {"max_tokens", 12}, {"ignore_eos", true}};
  CHECK(far.post("/v1/completions", body, 500).dump().find("tensor.14") != std::string::npos);
  CHECK(far.ids().size() == 12);
}
