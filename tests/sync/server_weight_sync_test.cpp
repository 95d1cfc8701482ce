#include <rlalgo/sync/server_weight_sync.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <nlohmann/json.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/http_server.hpp>
#include <support/not_run.hpp>

using namespace rlalgo;
using distributed::Store;
using Json = nlohmann::ordered_json;
using support::Environment;

namespace {

constexpr double seconds = 20.0;

http::ClientConfig quick(const std::string& url) {
  return {.base_url = url, .connect_seconds = 2, .call_seconds = 10, .retries = {.retries = 0}};
}

const std::vector<std::pair<std::string, tensor::Tensor>> one = {{"a", at::full({4}, 2.5, at::kFloat)}};

// The worker of a server, if it is met.
struct Served {
  std::string paths, version, server_info = "{}";
  bool gloo = false;
  std::unique_ptr<distributed::ProcessGroup> group = {};
  tensor::Tensor got = at::zeros({4}, at::kFloat);
  support::HttpServer server{[this](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
    if (path == "/openapi.json") return {200, paths};
    if (path == "/version") return {200, version};
    if (path == "/server_info") return {200, server_info};
    if (path.starts_with("/get_world_size")) return {200, R"({"world_size": 1})"};
    if (path == "/init_weight_transfer_engine") {
      const Json info = Json::parse(body)["init_info"];
      const Store store = Store::connect(info["master_address"], info["master_port"], 2, seconds);
      group = gloo ? join_gloo(store, 1, 2, seconds) : join_nccl(store, support::fake_library(), 1, 2, seconds);
    }
    if (path == "/update_weights" && group) group->broadcast(got, 0, seconds);
    return {200, "{}"};
  }};

  [[nodiscard]] sync::ServerWeightSync policy() {
    return {quick(server.url()), [] { return one; }, {.group_port = 0, .seconds = seconds}, 5.0};
  }
  [[nodiscard]] bool asked(const std::string& path) const {
    const auto seen = server.seen();
    return std::any_of(seen.begin(), seen.end(), [&](const auto& act) { return act.first == path; });
  }
};

const char* const vllm_paths =
    R"({"paths": {"/init_weight_transfer_engine": {}, "/start_weight_update": {}, "/update_weights": {}}})";

}  // namespace

TEST_CASE("HTTP where the server takes it, rlalgo's own or axolotl's") {
  Served axolotl{.paths = R"({"paths": {"/http_update_weights/": {}, "/init_communicator/": {}}})", .version = "{}"};
  sync::ServerWeightSync policy = axolotl.policy();
  const auto version = policy.version_source();
  CHECK(version() == -1);
  CHECK(policy.publish(3).bytes == 16);
  CHECK(version() == 3);
  CHECK(policy.publish(3).status == sync::Published::Status::unchanged);
  CHECK(axolotl.asked("/http_update_weights/"));
  CHECK(!axolotl.asked("/init_communicator/"));

  Served own{.paths = vllm_paths,
             .version = R"({"version": "0.1.0", "server": "rlalgo"})",
             .server_info = R"({"vllm_config": {"weight_transfer_config": {"backend": "nccl"}}})"};
  own.policy().publish(1);
  CHECK(own.asked("/update_weights"));
  CHECK(!own.asked("/init_weight_transfer_engine"));
}

TEST_CASE("Gloo where rlalgo's own server asks for it, NCCL where a server has nothing else") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Served own{.paths = vllm_paths,
             .version = R"({"version": "0.1.0", "server": "rlalgo"})",
             .server_info = R"({"vllm_config": {"weight_transfer_config": {"backend": "gloo"}}})",
             .gloo = true};
  sync::ServerWeightSync gloo = own.policy();
  CHECK(gloo.publish(1).bytes == 16);
  CHECK(at::equal(own.got, one[0].second));

  const Environment nccl("RLALGO_NCCL_LIBRARY", support::fake_nccl),
      cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  Served vllm{.paths = vllm_paths, .version = R"({"version": "0.32.0"})"};
  sync::ServerWeightSync policy = vllm.policy();
  CHECK(policy.publish(1).bytes == 16);
  CHECK(at::equal(vllm.got, one[0].second));
  policy.forget();
  CHECK(policy.version_source()() == -1);
  vllm.got.zero_();
  policy.publish(1);
  CHECK(at::equal(vllm.got, one[0].second));
}

TEST_CASE("a server that takes NCCL only, where there is none: why, and what to do") {
  Served vllm{.paths = vllm_paths, .version = R"({"version": "0.32.0"})"};
  const Environment nccl("RLALGO_NCCL_LIBRARY", "/nowhere/libnccl.so.2"),
      cudart("RLALGO_CUDART_LIBRARY", support::fake_nccl);
  sync::ServerWeightSync policy = vllm.policy();
  try {
    policy.publish(1);
    FAIL("published");
  } catch (const core::Error& error) {
    const std::string told = error.what();
    CHECK(told.find("[rlalgo.sync.1]") == 0);
    CHECK(told.find("vLLM 0.32.0") != std::string::npos);
    if (distributed::gloo_built()) CHECK(told.find("/nowhere/libnccl.so.2") != std::string::npos);
    CHECK(told.find("rlalgo vllm-serve") != std::string::npos);
  }
  CHECK(!vllm.asked("/init_weight_transfer_engine"));
  Served bare{.paths = R"({"paths": {}})", .version = R"({"version": "0.32.0"})"};
  sync::ServerWeightSync nothing = bare.policy();
  CHECK_THROWS_AS(nothing.publish(1), core::Error);
}
