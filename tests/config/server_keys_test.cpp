#include <support/catch.hpp>

#include <string>

#include <rlalgo/config/server_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("defaults of servers are TRL's") {
  const ServerConfig s;
  CHECK_FALSE(s.use_vllm);
  CHECK(s.vllm_mode == "server");
  CHECK(s.vllm_server_port == 8000);
  CHECK(s.vllm_group_port == 51216);
  CHECK(s.vllm_server_timeout == 240.0);
  CHECK(s.vllm_importance_sampling_correction);
  CHECK(s.vllm_importance_sampling_mode == "sequence_mask");
  CHECK(s.vllm_importance_sampling_clip_max == 3.0);
  CHECK_FALSE(s.vllm_importance_sampling_clip_min.has_value());
}

TEST_CASE("why a key of a server has no effect depends on who generates") {
  ServerConfig s;
  const auto why = [&](std::string_view name, bool corrects = false) {
    for (const Key& row : server_keys(s, corrects))
      if (row.name == name) return std::string(row.idle_because());
    return std::string("no such key");
  };
  CHECK(why("trl.request_timeout").find("generated in this process") != std::string::npos);
  CHECK(why("trl.vllm_server_host").find("generated in this process") != std::string::npos);
  CHECK(why("trl.vllm_importance_sampling_mode").find("generated in this process") != std::string::npos);
  CHECK(why("trl.vllm_importance_sampling_mode", true).empty());
  s.agents = true;
  CHECK(s.serves());
  CHECK(why("trl.vllm_server_host").empty());
  CHECK(why("trl.request_timeout").find("the agents ask this process") != std::string::npos);
  CHECK(why("trl.vllm_structured_outputs_regex").find("agents' requests") != std::string::npos);
  s.use_vllm = true;
  CHECK_FALSE(s.serves());
  CHECK(why("trl.request_timeout").empty());
  CHECK(why("trl.vllm_tensor_parallel_size").find("colocate") != std::string::npos);
}
