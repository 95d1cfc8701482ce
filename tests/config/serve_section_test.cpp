#include <rlalgo/config/serve_section.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

config::ServeSection section(const std::string& yaml) {
  return config::read_serve_section(config::parse_document("rl: grpo\n" + yaml, "c.yaml"));
}

}  // namespace

TEST_CASE("the vllm section says how a configuration is served") {
  const config::ServeSection s = section(
      "vllm: {host: 127.0.0.1, port: 9001, dtype: bfloat16, max_model_len: 64, enable_prefix_caching: true, "
      "gpu_memory_utilization: 0.35}\n");
  CHECK(s.host == "127.0.0.1");
  CHECK(s.port == 9001);
  CHECK(s.dtype == "bfloat16");
  CHECK(s.max_model_len == 64);
  CHECK(s.gpu_memory_utilization == 0.35);
  CHECK(s.warnings.empty());
  for (const char* none :
       {"", "vllm:\n", "vllm: {}\n", "vllm: {port: null, tensor_parallel_size: 1, device: auto}\n"}) {
    const config::ServeSection n = section(none);
    CHECK_FALSE(n.host.has_value());
    CHECK_FALSE(n.port.has_value());
    CHECK_FALSE(n.gpu_memory_utilization.has_value());
    CHECK(n.warnings.empty());
  }
}

TEST_CASE("keys of vLLM's own parts are told, those that would change what is served are refused by name") {
  const config::ServeSection s = section(
      "vllm: {enforce_eager: true, worker_extension_cls: a.B, serve_module: "
      "trl.scripts.vllm_serve, enable_prefix_caching: false}\n");
  REQUIRE(s.warnings.size() == 3);
  CHECK_THAT(s.warnings[0], Catch::Contains("enable_prefix_caching"));
  CHECK_THAT(s.warnings[1], Catch::Contains("vllm.enforce_eager (c.yaml:2"));
  for (const char* size : {"tensor_parallel_size", "data_parallel_size"}) {
    const config::ServeSection several = section(std::string("vllm: {") + size + ": 2}\n");
    REQUIRE(several.warnings.size() == 1);
    CHECK_THAT(several.warnings[0], Catch::Contains(size) && Catch::Contains("one process"));
  }
  const std::pair<const char*, const char*> refused[] = {
      {"enable_reasoning: true", "config.10"},
      {"reasoning_parser: qwen3", "config.10"},
      {"serve_module: my.server", "config.10"},
      {"device: gpu", "config.6"},
      {"dtype: float16", "config.6"},
      {"port: 70000", "config.6"},
      {"max_model_len: 0", "config.6"},
      {"gpu_memory_utilization: 0", "config.6"},
      {"gpu_memory_utilization: 1.5", "config.6"},
      {"gpu_memory_utilization: .nan", "config.5"},
      {"gpu_memory_utilization: much", "config.5"},
      {"prot: 8000", "config.4"},
      {"port: x", "config.5"},
      {"port: [8000]", "config.5"},
  };
  for (const auto& [key, number] : refused) {
    INFO(key);
    const std::string raised = support::raised_by([&] { (void)section(std::string("vllm: {") + key + "}\n"); });
    CHECK(raised.substr(0, raised.find(':')) == number);
    CHECK_THAT(raised, Catch::Contains("c.yaml:2") && Catch::Contains("vllm."));
  }
  CHECK(support::number_raised_by([] { (void)section("vllm: 8000\n"); }) == "config.5");
}
