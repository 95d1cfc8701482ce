// What a stranger may do to a server: others are answered meanwhile, and it ends when it is told to.
#include <rlalgo/serve/server.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/http/client.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/serve/detail/who_asks.hpp>
#include <rlalgo/serve/fields.hpp>

#include <support/catch.hpp>
#include <support/raw_client.hpp>
#include <support/scratch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using serve::Json;
using support::RawClient;

namespace {

struct Bench {
  serve::GenerationServer server;
  http::Client client;

  explicit Bench(serve::ServerConfig config = {})
      : server(served::model(), small(std::move(config))),
        client({.base_url = server.url(), .call_seconds = 60, .retries = {.retries = 0}}) {}
  static serve::ServerConfig small(serve::ServerConfig config) {
    config.http.port = 0;
    config.engine.engine.threads = 1;
    return config;
  }
  http::Response post(const std::string& target, const std::string& body, http::Headers headers = {}) {
    return client.call({.method = "POST", .target = target, .headers = std::move(headers), .body = body}).response();
  }
  http::Response post(const std::string& target, const Json& body) {
    return post(target, body.dump(), {{"Content-Type", "application/json"}});
  }
  // What comes back of raw bytes, up to the end of the connection.
  [[nodiscard]] std::string raw(const std::string& bytes) const {
    RawClient client(server.port());
    client.send(bytes);
    return client.receive_all();
  }
  // A request whose answer nobody reads yet.
  [[nodiscard]] std::unique_ptr<RawClient> begin(const std::string& target, const std::string& body) const {
    auto out = std::make_unique<RawClient>(server.port());
    out->send("POST " + target + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
    return out;
  }
  // /health is answered while others have to wait; how long it takes is no matter of a test on a busy machine.
  void healthy(int times = 20) {
    for (int i = 0; i < times; ++i) {
      const os::Stopwatch watch;
      CHECK(client.call({.target = "/health"}).response().status == 200);
      CHECK(watch.seconds() < 3.0);
    }
  }
};

std::string with(const std::string& header, const std::string& body = "{}") {
  return "POST /v1/completions HTTP/1.1\r\nConnection: close\r\n" + header +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

const std::string completion = R"({"prompt": [40, 41], "max_tokens": 1})";
const std::string json = "Content-Type: application/json\r\n";

}  // namespace

TEST_CASE("without a key, pages of others are no programs of this machine") {
  Bench bench({.allowed_hosts = {"models.example"}});
  const auto status = [&](const std::string& header) { return bench.raw(with(header, completion)).substr(9, 3); };
  for (const char* host : {"localhost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]:8000", "a.localhost", "models.example",
                           "rlalgo:8000", "LOCALHOST."})
    CHECK(status("Host: " + std::string(host) + "\r\n" + json) == "200");
  for (const char* host :
       {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "[::2]", ""})
    CHECK(status("Host: " + std::string(host) + "\r\n" + json) == "403");
  const std::string own = "Host: localhost:8000\r\n";
  CHECK(status(own + json + "Origin: http://localhost:3000\r\n") == "200");
  CHECK(status("Host: models.example\r\n" + json + "Origin: http://models.example\r\n") == "200");
  for (const char* origin : {"https://evil.example", "null", "http://wiki", "http://127.0.0.1.evil.example", "file://"})
    CHECK(status(own + json + "Origin: " + origin + "\r\n") == "403");
  CHECK(status(own + json + "Sec-Fetch-Site: same-origin\r\n") == "200");
  CHECK(status(own + json + "Sec-Fetch-Site: cross-site\r\n") == "403");
  // What forms and scripts may send without asking first.
  CHECK(status(own + "Content-Type: text/plain\r\n") == "415");
  CHECK(status(own + "Content-Type: text/plain;charset=UTF-8\r\n") == "415");
  CHECK(status(own + "Content-Type: multipart/form-data; boundary=x\r\n") == "415");
  CHECK(status(own + "Content-Type: application/x-www-form-urlencoded\r\n") == "200");  // curl -d
  CHECK(status(own) == "200");
  CHECK(status(own + "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://localhost\r\n") == "415");
  CHECK(status(own + "Content-Type: application/json; charset=utf-8\r\n") == "200");
  const std::string refused = bench.raw(with("Host: evil.example\r\n" + json));
  CHECK(refused.find("[rlalgo.serve.29]") != std::string::npos);
  CHECK(refused.find("--allowed-host") != std::string::npos);
  CHECK(bench
            .raw("POST /pause HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
                 "Content-Length: 0\r\n\r\n")
            .substr(9, 3) == "403");
  CHECK(bench.raw("GET /v1/models HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n\r\n").substr(9, 3) == "403");
  CHECK(bench.raw("GET /health HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n\r\n").substr(9, 3) == "200");
  Bench guarded({.api_key = "secret"});
  CHECK(guarded.raw(with("Host: evil.example\r\nAuthorization: Bearer secret\r\n" + json, completion)).substr(9, 3) ==
        "200");
}

TEST_CASE("key, path, method and size are looked at when the header is there") {
  Bench bench({.api_key = "secret", .body_limit = 1000});
  const std::string large = " HTTP/1.1\r\nHost: x\r\nContent-Length: 300000000\r\n";
  const std::string key = "Authorization: Bearer secret\r\n";
  CHECK(bench.raw("POST /v1/completions" + large + "\r\n").find("[rlalgo.serve.8]") != std::string::npos);
  CHECK(bench.raw("POST /update_weights" + large + "\r\n").substr(9, 3) == "401");
  CHECK(bench.raw("POST /v1/completions" + large + key + "\r\n").find("[rlalgo.serve.11]") != std::string::npos);
  CHECK(bench.raw("PUT /v1/completions" + large + key + "\r\n").substr(9, 3) == "405");
  CHECK(bench
            .raw("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + key + json + "\r\n7d0\r\n" +
                 std::string(2000, ' '))
            .substr(9, 3) == "413");
  CHECK(bench.raw("POST /generate/" + large + key + "\r\n").find(R"({"detail":)") != std::string::npos);
}

TEST_CASE("an answer that is too large is refused at once, and nobody else is told anything") {
  Bench bench({.answer_bytes = 100'000'000});
  const auto refused = [&](const std::string& target, const Json& body) {
    const http::Response response = bench.post(target, body);
    INFO(response.body);
    CHECK(response.status == 400);
    CHECK(response.body.find("[rlalgo.serve.28]") != std::string::npos);
    CHECK(response.body.find(" MB") != std::string::npos);
  };
  const Json many = {{"prompt", "a"}, {"max_tokens", 190}, {"n", 4096}, {"logprobs", 20}, {"ignore_eos", true}};
  refused("/v1/completions", many);
  refused("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                                   {"max_tokens", 100},
                                   {"n", 2000},
                                   {"logprobs", true},
                                   {"top_logprobs", 20}});
  refused("/generate/", {{"prompts", {"a", "b"}}, {"n", 4096}, {"max_tokens", 190}, {"logprobs", 20}});
  refused("/inference/v1/generate",
          {{"token_ids", {40}}, {"sampling_params", {{"n", 4096}, {"max_tokens", 190}, {"logprobs", 20}}}});
  Json sequences = Json::array(), lengths = Json::array();
  for (int i = 0; i < 3000; ++i) sequences.push_back({1, 2, 3}), lengths.push_back(1);
  refused("/get_sequence_logprobs/", {{"sequences", sequences}, {"prompt_lengths", lengths}, {"top_logprobs", 447}});
  // Padded to the longest, the binary form is large where the lists are not.
  std::vector<int> longest(190, 3);
  sequences.push_back(longest), lengths.push_back(0);
  refused("/get_sequence_logprobs/",
          {{"sequences", sequences}, {"prompt_lengths", lengths}, {"top_logprobs", 10}, {"response_format", "binary"}});
  CHECK(bench.post("/v1/completions", Json::parse(completion)).status == 200);
}

TEST_CASE("others are answered whatever one asks for") {
  Bench bench;
  std::vector<std::unique_ptr<RawClient>> busy;
  SECTION("templates that take all they may") {
    const Json body = {
        {"messages", {{{"role", "user"}, {"content", "hi"}}}},
        {"max_tokens", 1},
        {"chat_template",
         "{% set s = 'a' * 500000 %}{% set t = s ~ 'b' %}{% for i in range(9999) %}{% for j in range(9999) %}"
         "{% if t in s %}{% endif %}{% endfor %}{% endfor %}"}};
    for (int i = 0; i < 6; ++i) busy.push_back(bench.begin("/v1/chat/completions", body.dump()));
    CHECK(busy.size() == 6);
  }
  SECTION("texts of many megabytes") {
    std::string text;
    while (text.size() < (std::size_t{6} << 20U)) text += "some words and 12345 numbers ";
    for (int i = 0; i < 5; ++i) busy.push_back(bench.begin("/tokenize", Json{{"prompt", text}}.dump()));
    CHECK(busy.size() == 5);
  }
  SECTION("a list of prompts, a thousand completions, sequences") {
    Json prompts = Json::array();
    for (int i = 0; i < 3000; ++i) prompts.push_back("a " + std::to_string(i));
    busy.push_back(
        bench.begin("/v1/completions", Json{{"prompt", prompts}, {"max_tokens", 20}, {"ignore_eos", true}}.dump()));
    busy.push_back(bench.begin("/v1/completions",
                               Json{{"prompt", "a"}, {"n", 2000}, {"max_tokens", 20}, {"ignore_eos", true}}.dump()));
    Json sequences = Json::array(), lengths = Json::array();
    for (int i = 0; i < 2000; ++i) sequences.push_back({1, 2, 3}), lengths.push_back(1);
    busy.push_back(
        bench.begin("/get_sequence_logprobs/",
                    Json{{"sequences", sequences}, {"prompt_lengths", lengths}, {"top_logprobs", 5}}.dump()));
    for (int i = 0; i < 5; ++i) CHECK(bench.post("/v1/completions", Json::parse(completion)).status == 200);
  }
  bench.healthy();
  busy.resize(1);  // those that leave end what they asked for
  bench.healthy();
  const os::Stopwatch watch;
  bench.server.stop(0.2);
  CHECK(watch.seconds() < 30.0);
}
