// A colocated server on a port that is free, and a client that asks it as an agent would.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <c10/core/GradMode.h>

#include <rlalgo/colocated/colocated_server.hpp>
#include <rlalgo/http/client.hpp>

#include <support/catch.hpp>

#include "serve/served.hpp"

namespace beside {

using namespace rlalgo;
using Json = nlohmann::ordered_json;

inline serve::ServerConfig config(std::uint16_t port = 0) {
  serve::ServerConfig out{.drawn_log_probs = true, .seed = 7, .report_seconds = 0.0};
  out.http.port = port;
  out.engine.engine.threads = 1;
  return out;
}

struct Answer {
  std::vector<data::TokenId> ids;
  std::vector<double> log_probs;
  std::string version;
};

inline Answer ask(const std::string& url, const std::string& text = "3 + 4") {
  http::Client client({.base_url = url, .call_seconds = 20, .retries = {.retries = 0}});
  const Json body = {{"model", "policy"},  {"messages", {{{"role", "user"}, {"content", text}}}},
                     {"max_tokens", 12},   {"logprobs", true},
                     {"ignore_eos", true}, {"return_token_ids", true}};
  const http::Response response =
      client.call({.method = "POST", .target = "/v1/chat/completions", .body = body.dump()}).response();
  INFO(response.body);
  REQUIRE(response.status == 200);
  const Json choice = Json::parse(response.body).at("choices").at(0), message = choice.at("message");
  return {message.at("generation_token_ids").get<std::vector<data::TokenId>>(),
          message.at("generation_log_probs").get<std::vector<double>>(), choice.at("weights_version_name")};
}

// The model of served.hpp, trained as a whole.
inline serve::ServedModel trained() {
  serve::ServedModel out = served::model();
  const auto decoder = served::decoder();
  decoder->set_trained(true);
  out.decoder = decoder;
  return out;
}

inline void change(model::Decoder& decoder) {
  const c10::NoGradGuard no_grad;
  for (const model::Parameter& p : decoder.parameters()) p.value.mul_(1.1);
}

}  // namespace beside
