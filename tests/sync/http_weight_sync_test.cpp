#include <rlalgo/core/base64.hpp>
#include <rlalgo/sync/http_weight_sync.hpp>

#include <cstring>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <support/catch.hpp>
#include <support/http_server.hpp>

using namespace rlalgo;
using Json = sync::HttpWeightSync::Json;

namespace {
http::ClientConfig quick(const std::string& url) {
  return {.base_url = url, .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = 0}};
}
}  // namespace

TEST_CASE("weights travel once per version, at its publish") {
  rlalgo::support::HttpServer server([](const std::string&, const std::string&) {
    return std::pair{200, std::string("{}")};
  });
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
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].first == "/health/");
  CHECK(seen[1].first == "/http_update_weights/");
  CHECK(seen[2].first == "/reset_prefix_cache/");
  const Json params = Json::parse(seen[1].second)["params"];
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
  CHECK(server.seen().size() == 5);
}

TEST_CASE("a group stays below 10 MiB, a larger tensor goes alone") {
  rlalgo::support::HttpServer server([](const std::string&, const std::string&) {
    return std::pair{200, std::string("{}")};
  });
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
