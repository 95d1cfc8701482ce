#include <rlalgo/core/base64.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using Json = sync::HttpWeightSync::Json;

namespace {
http::ClientConfig quick(const std::string& url) {
  return {.base_url = url, .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = 0}};
}
std::pair<int, std::string> axolotl(const std::string& path, const std::string& /*body*/) {
  if (path == "/openapi.json") return {200, R"({"paths": {"/http_update_weights/": {}}})"};
  return {200, "{}"};
}
// A body in JSON as it is; of a safetensors file its session, and type, shape and sum of each tensor.
Json act(const std::string& body) {
  if (body.starts_with("{")) return Json::parse(body);
  const model::SafetensorsFile file(std::as_bytes(std::span(body)), "body");
  Json out = {{"session", file.metadata().at("session")}, {"tensors", Json::object()}};
  for (const auto& [name, entry] : file.entries())
    out["tensors"][name] = {c10::toString(entry.dtype), entry.shape, file.read(name).sum().item<double>()};
  return out;
}
}  // namespace

TEST_CASE("weights travel once per version, at its publish") {
  rlalgo::support::HttpServer server(axolotl);
  std::vector<std::pair<std::string, at::Tensor>> weights = {
      {"a", at::tensor({1.5F, -2.0F})}, {"b", at::tensor({70000.0F}).to(at::kBFloat16).view({1, 1})}};
  sync::HttpWeightSync policy(quick(server.url()), [&] { return weights; });
  const auto version = policy.version_source();
  CHECK(version() == -1);
  CHECK(server.seen().empty());  // asking sends nothing
  const sync::Published published = policy.publish(1);
  CHECK(published.version == 1);
  CHECK(published.status == sync::Published::Status::sent);
  CHECK(published.bytes == 3 * 4);
  CHECK(published.seconds > 0);
  CHECK(policy.publish(1).status == sync::Published::Status::unchanged);
  CHECK(version() == 1);
  const auto seen = server.seen();
  std::vector<std::string> paths;
  for (const auto& [path, body] : seen) paths.push_back(path);
  CHECK(paths == std::vector<std::string>{"/health/", "/openapi.json", "/version", "/http_update_weights/",
                                          "/reset_prefix_cache/"});
  const Json params = Json::parse(seen[3].second)["params"];
  REQUIRE(params.size() == 2);
  CHECK(params[0] == Json{{"name", "a"}, {"dtype", "torch.float32"}, {"shape", {2}}, {"data", "AADAPwAAAMA="}});
  CHECK(params[1]["dtype"] == "torch.bfloat16");
  CHECK(params[1]["shape"] == Json{1, 1});
  // beyond float16, as f32
  const auto bytes = *core::from_base64(params[1]["data"].get<std::string>());
  REQUIRE(bytes.size() == 4);
  float value = 0;
  std::memcpy(&value, bytes.data(), 4);
  CHECK(value == weights[1].second.item<float>());
  policy.publish(2);
  CHECK(version() == 2);
  CHECK(server.seen().size() == 7);
}

TEST_CASE("a group stays below 10 MiB, a larger tensor goes alone") {
  rlalgo::support::HttpServer server(axolotl);
  const auto mib = [](std::int64_t n) { return at::zeros({n << 18}); };
  sync::HttpWeightSync policy(quick(server.url()), [&] {
    return std::vector<std::pair<std::string, at::Tensor>>{
        {"a", mib(6)}, {"b", mib(4)}, {"c", mib(1)}, {"d", mib(11)}, {"e", mib(1)}};
  });
  CHECK(policy.publish(0).bytes == 23 << 20);
  std::vector<std::string> groups;
  for (const auto& [path, body] : server.seen()) {
    if (path != "/http_update_weights/") continue;
    std::string names;
    const Json request = Json::parse(body);
    for (const Json& p : request["params"]) names += p["name"].get<std::string>();
    groups.push_back(names);
  }
  CHECK(groups == std::vector<std::string>{"ab", "c", "d", "e"});
}

TEST_CASE("a server that answers GET of the endpoint with 404 gets weights by POST all the same") {
  std::size_t pushed = 0;
  rlalgo::support::HttpServer server([&](const std::string& path, const std::string& body) {
    const bool posted = path == "/http_update_weights/" && !body.empty();
    pushed += posted ? 1 : 0;
    return std::pair{posted || path == "/health/" || path == "/reset_prefix_cache/" ? 200 : 404, std::string("{}")};
  });
  sync::HttpWeightSync policy(quick(server.url()), [] {
    return std::vector<std::pair<std::string, at::Tensor>>{{"a", at::zeros({1})}};
  });
  CHECK(policy.publish(0).bytes == 4);
  CHECK(pushed == 1);
}

TEST_CASE("a server without the endpoint, and one that fails") {
  int status = 404;
  rlalgo::support::HttpServer server([&](const std::string& path, const std::string&) {
    return std::pair{path == "/health/" ? 200 : status, std::string()};
  });
  sync::HttpWeightSync policy(quick(server.url()), [] {
    return std::vector<std::pair<std::string, at::Tensor>>{{"a", at::zeros({1})}};
  });
  CHECK_THROWS_WITH(policy.publish(0), Catch::Contains("[rlalgo.sync.1]") && Catch::Contains("axolotl"));
  status = 400;
  CHECK_THROWS_WITH(policy.publish(0), Catch::Contains("[rlalgo.http.2]") && Catch::Contains("HTTP 400"));
  CHECK(policy.version_source()() == -1);  // it failed: nothing is in force
  status = 200;
  CHECK(policy.publish(0).version == 0);
}

TEST_CASE("rlalgo's own server gets a session, of the tensors as they are") {
  std::vector<std::pair<std::string, Json>> acts;
  int lost = 0;  // answers that break off
  rlalgo::support::HttpServer server(
      [&](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
        if (path == "/openapi.json")
          return {200, R"({"paths": {"/start_weight_update": {}, "/http_update_weights/": {}}})"};
        if (path == "/version") return {200, R"({"version": "1", "server": "rlalgo"})"};
        if (path == "/health/") return {200, "{}"};
        acts.emplace_back(path, act(body));
        return {lost-- > 0 ? 503 : 200, "{}"};
      });
  http::ClientConfig patient = quick(server.url());
  patient.retries = {.retries = 2, .first_wait = 0.01};
  sync::HttpWeightSync policy(patient, [] {
    return std::vector<std::pair<std::string, at::Tensor>>{{"a", at::tensor({1.5F, -2.0F})},
                                                           {"b", at::tensor({-1.0F}).to(at::kBFloat16).view({1, 1})}};
  });
  CHECK(policy.publish(7).bytes == 8 + 2);
  REQUIRE(acts.size() == 3);
  const Json session = acts[0].second["session"];
  CHECK(session.get<std::string>().starts_with("trainer-"));
  CHECK(acts[0].first == "/start_weight_update");
  CHECK(acts[1].first == "/update_weights");
  CHECK(acts[1].second ==
        Json{{"session", session}, {"tensors", {{"a", {"Float", {2}, -0.5}}, {"b", {"BFloat16", {1, 1}, -1.0}}}}});
  CHECK(acts[2] ==
        std::pair{std::string("/finish_weight_update"), Json{{"weight_version", "v7"}, {"session", session}}});
  lost = 1;
  policy.publish(8);
  CHECK(acts.size() == 7);
  CHECK(acts[3] == acts[4]);  // the same session: the server knows that it is no second trainer
}

TEST_CASE("another trainer's update is waited for, as long as a server to be up") {
  int refusals = 1, starts = 0;
  std::string number = "20";
  rlalgo::support::HttpServer server([&](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    if (path == "/openapi.json")
      return {200, R"({"paths": {"/start_weight_update": {}}, "info": {"title": "rlalgo"}})"};
    if (path == "/version") return {200, R"({"version": "0.1.0", "server": "rlalgo"})"};
    if (path == "/start_weight_update" && ++starts <= refusals)
      return {400, R"({"error": {"message": "[rlalgo.serve.)" + number + R"(] a weight update is under way"}})"};
    return {200, "{}"};
  });
  std::vector<std::string> heard;
  const auto publish = [&](double seconds) {
    sync::HttpWeightSync policy(
        quick(server.url()),
        [] {
          return std::vector<std::pair<std::string, at::Tensor>>{{"a", at::zeros({1})}};
        },
        seconds, [&](const std::string& text) { heard.push_back(text); });
    return support::number_raised_by([&] { policy.publish(0); });
  };
  CHECK(publish(10.0) == "nothing");
  CHECK(starts == 2);
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].find("a weight update is under way") != std::string::npos);
  starts = 0;
  refusals = 100;
  CHECK(publish(0.3) == "sync.8");
  CHECK(starts >= 2);
  starts = 0;
  number = "19";  // refused for good
  CHECK(publish(10.0) == "http.2");
  CHECK(starts == 1);
}

TEST_CASE("rlalgo's own server on this machine gets a file, where it reads it") {
  const support::ScratchDirectory scratch;
  std::vector<std::string> acts, told;
  std::string read;
  int status = 200;
  rlalgo::support::HttpServer server(
      [&](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
        if (path == "/openapi.json") return {200, R"({"paths": {"/start_weight_update": {}}})"};
        if (path == "/version") return {200, R"({"version": "1", "server": "rlalgo"})"};
        if (path == "/health/") return {200, "{}"};
        const Json said = act(body), info = said.value("update_info", Json::object());
        acts.push_back(path + (info.contains("path") ? " file" : said.contains("tensors") ? " data" : ""));
        if (!info.contains("path")) return {200, "{}"};
        const model::SafetensorsFile file(info["path"].get<std::string>());
        read = std::to_string(file.read("a").sum().item<double>()) + c10::toString(file.read("b").scalar_type());
        return {status, "{}"};
      });
  const auto weights = [] {
    return std::vector<std::pair<std::string, at::Tensor>>{{"a", at::tensor({1.5F, -2.0F})},
                                                           {"b", at::tensor({-1.0F}).to(at::kBFloat16).view({1, 1})}};
  };
  sync::HttpWeightSync policy(
      quick(server.url()), weights, 5, [&](const std::string& line) { told.push_back(line); },
      scratch.path() / "out" / "sync");
  CHECK(policy.publish(7).bytes == 8 + 2);
  CHECK(acts == std::vector<std::string>{"/start_weight_update", "/update_weights file", "/finish_weight_update"});
  CHECK(read == "-0.500000BFloat16");
  CHECK(std::filesystem::is_empty(scratch.path() / "out"));
  CHECK(told.empty());

  status = 403;  // from now on over HTTP
  acts.clear();
  CHECK(policy.publish(8).bytes == 8 + 2);
  policy.publish(9);
  CHECK(acts == std::vector<std::string>{"/start_weight_update", "/update_weights file", "/update_weights data",
                                         "/finish_weight_update", "/start_weight_update", "/update_weights data",
                                         "/finish_weight_update"});
  CHECK(told.size() == 1);
  CHECK(std::filesystem::is_empty(scratch.path() / "out"));

  acts.clear();
  std::ofstream(scratch.path() / "taken") << "x";  // no directory can be made there
  sync::HttpWeightSync nowhere(
      quick(server.url()), weights, 5, [&](const std::string& line) { told.push_back(line); },
      scratch.path() / "taken");
  nowhere.publish(1);
  CHECK(acts == std::vector<std::string>{"/start_weight_update", "/update_weights data", "/finish_weight_update"});
  CHECK(told.size() == 2);
  CHECK(std::filesystem::exists(scratch.path() / "taken"));

  status = 500;  // not a question of the way
  sync::HttpWeightSync failing(quick(server.url()), weights, 5, {}, scratch.path() / "out" / "sync");
  CHECK_THROWS_WITH(failing.publish(1), Catch::Contains("[rlalgo.http.2]"));
  CHECK(std::filesystem::is_empty(scratch.path() / "out"));
}
