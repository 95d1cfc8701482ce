// How an update begins at rlalgo's own server: in a session of the trainer's, so that each act can be repeated when its
// answer is lost, and nobody else's act counts.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/json_client.hpp>
#include <rlalgo/sync/detail/server_version.hpp>

namespace rlalgo::sync::detail {

// Of a session.
inline std::string random_name() {
  std::random_device source;
  const std::uint64_t bits = (std::uint64_t{source()} << 32U) | source();
  std::string out = "trainer-";
  for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[(bits >> static_cast<unsigned>(shift)) & 15U];
  return out;
}

// Waits while another trainer's update is open: a killed one's gives way in time. [rlalgo.sync.8]
inline void begin_session(ServerVersion& server, const std::string& session,
                          const std::function<void(const std::string&)>& tell) {
  const auto busy = [](const http::Response& response) {
    return response.status == 400 && response.body.find("[rlalgo.serve.20]") != std::string::npos;
  };
  const std::string where = server.client.base_url() + "/start_weight_update";
  const http::Result result =
      server.client.ask_while(busy, "/start_weight_update", {{"session", session}}, server.start_seconds(), tell);
  if (busy(result.response()))
    core::raise("sync", 8,
                {.what = "another trainer's weight update stays open at the server",
                 .found = result.text(),
                 .where = where,
                 .remedy = "end the other trainer, or give each a server of its own; one that was killed is forgotten "
                           "after 60 s (raise trl.vllm_server_timeout)"});
  if (!result.ok()) http::JsonClient::refuse(result, "POST " + where);
}

}  // namespace rlalgo::sync::detail
