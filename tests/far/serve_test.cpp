// A generation server whose model lies on a device that the host may not touch.
#include <filesystem>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/serve/server.hpp>

#include <serve/served.hpp>
#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using Json = nlohmann::ordered_json;

namespace {

struct Served {
  serve::GenerationServer server;
  http::Client client;

  Served(const std::filesystem::path& model, at::Device device, const std::filesystem::path& allowed)
      : server(on(model, device), {.http = {.port = 0}, .allowed_paths = {allowed}}),
        client({.base_url = server.url(), .call_seconds = 30, .retries = {.retries = 0}}) {}

  static serve::ServedModel on(const std::filesystem::path& model, at::Device device) {
    serve::ServedModel out = served::model();
    out.decoder = model::load_decoder(model, {.device = device});
    return out;
  }

  Json post(const std::string& target, const Json& body) {
    const http::Response answer = client
                                      .call({.method = "POST",
                                             .target = target,
                                             .headers = {{"Content-Type", "application/json"}},
                                             .body = body.dump()})
                                      .response();
    INFO(target << ": " << answer.body);
    CHECK(answer.status == 200);
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
