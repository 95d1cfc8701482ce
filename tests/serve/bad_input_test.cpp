// What clients may send that is wrong: each is refused with its status and number, and the server answers the next request as
// if nothing had been.
#include <rlalgo/serve/server.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/http/client.hpp>
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
        client({.base_url = server.url(), .call_seconds = 20, .retries = {.retries = 0}}) {}

  static serve::ServerConfig small(serve::ServerConfig config) {
    config.http.port = 0;
    config.engine.engine.threads = 1;
    return config;
  }
  http::Response post(const std::string& target, const std::string& body) {
    return client.call({.method = "POST", .target = target, .body = body}).response();
  }
  // The greedy completion that every refusal must leave as it was.
  std::string good() {
    const http::Response answer = post(
        "/v1/completions", R"({"prompt": [40, 41, 42], "max_tokens": 6, "temperature": 0, "return_token_ids": true})");
    REQUIRE(answer.status == 200);
    return Json::parse(answer.body)["choices"][0]["token_ids"].dump();
  }
  // Refused with this status and number, by the route's form of errors.
  void refused(const std::string& target, const std::string& body, int status, const std::string& number) {
    INFO(target << " " << body.substr(0, 200));
    const http::Response answer = post(target, body);
    INFO(answer.body.substr(0, 400));
    CHECK(answer.status == status);
    const Json told = Json::parse(answer.body, nullptr, false);
    REQUIRE(told.is_object());
    const std::string message =
        told.contains("detail") ? told["detail"].get<std::string>() : told["error"]["message"].get<std::string>();
    CHECK(message.starts_with("[rlalgo." + number + "]"));
    CHECK(message.size() < 1000);
  }
};

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// float32 zeros as they are sent.
std::string zeros(std::size_t count) { return core::base64(std::vector<unsigned char>(4 * count)); }

std::string tensor_of(const std::string& name, std::vector<std::int64_t> shape, std::size_t elements) {
  return Json{{"name", name}, {"dtype", "float32"}, {"shape", std::move(shape)}, {"data", zeros(elements)}}.dump();
}

}  // namespace

TEST_CASE("bodies that are no request") {
  Bench bench;
  const std::string before = bench.good();
  for (const char* target : {"/v1/completions", "/v1/chat/completions", "/generate/", "/chat/", "/tokenize",
                             "/get_sequence_logprobs/", "/v1/load_lora_adapter", "/http_update_weights/"}) {
    for (const std::string& body :
         {std::string(), std::string("{"), std::string("nonsense"), std::string("[]"), std::string("\"text\""),
          std::string("{\"prompt\": \"a\"} x"), std::string("{\"prompt\": NaN}"), std::string("\xff\xfe"),
          std::string("{\"prompt\": \"\xc3(\"}"), nested(100'000), "{\"prompt\": " + nested(100'000) + "}",
          std::string(100'000, '{'), std::string("{\"a\": 1, \0}", 11)})
      bench.refused(target, body, 400, "serve.1");
    bench.refused(target, "{}", 400, "serve.2");
  }
  CHECK(bench.good() == before);
}

TEST_CASE("values of the wrong type, out of range, or of nothing that is there") {
  Bench bench;
  const std::string before = bench.good();
  const auto ask = [&](const std::string& fields, int status, const std::string& number) {
    bench.refused("/v1/completions", R"({"prompt": "a", )" + fields + "}", status, number);
  };
  for (const char* name : {"max_tokens", "n", "temperature", "top_p", "seed", "logprobs", "min_tokens"})
    for (const char* value : {"\"1\"", "true", "[1]", "{}"})
      ask("\"" + std::string(name) + "\": " + value, 400, "serve.3");
  for (const char* fields :
       {R"("max_tokens": -1)", R"("max_tokens": -9223372036854775808)", R"("max_tokens": 18446744073709551615)",
        R"("max_tokens": 1e300)", R"("n": 0)", R"("n": -3)", R"("n": 1000000000)", R"("n": 1e308)",
        R"("temperature": -0.1)", R"("top_p": 1.5)", R"("top_k": -2)", R"("seed": 1e30)", R"("stop": "")",
        R"("logit_bias": {"530": 1})", R"("logit_bias": {"5": 1e9})", R"("allowed_token_ids": [])",
        R"("stop_token_ids": [-1])"})
    ask(fields, 400, "serve.4");
  for (const char* value : {"NaN", "Infinity", "-Infinity", "1e999"})
    ask("\"temperature\": " + std::string(value), 400, "serve.1");
  for (const char* prompt : {"[530]", "[-1]", "[1, 2, 4294967296]", "[[1], [99999999999999999999]]"})
    bench.refused("/v1/completions", R"({"prompt": )" + std::string(prompt) + "}", 400, "serve.4");
  for (const char* prompt : {"5", "{}", "[]", "[1.5]", "[true]", "[[\"a\"]]", "[1, \"a\"]"})
    bench.refused("/generate/", R"({"prompts": )" + std::string(prompt) + "}", 400, "serve.3");
  bench.refused("/generate/", R"({"prompts": [[]]})", 400, "serve.13");
  bench.refused("/v1/completions", Json{{"prompt", std::vector<int>(200, 7)}}.dump(), 400, "serve.13");
  bench.refused("/v1/completions", Json{{"prompt", std::vector<int>(400'000, 7)}}.dump(), 400, "serve.13");
  ask(R"("model": "nobody")", 404, "serve.5");
  bench.refused("/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "/no/such/folder"})", 404, "serve.18");
  bench.refused("/v1/unload_lora_adapter", R"({"lora_name": "a"})", 404, "serve.5");
  CHECK(bench.good() == before);
}

TEST_CASE("a prompt that does not fit says so in the words that agents look for, on every route") {
  Bench bench;
  const std::vector<int> ids(400, 7);
  const std::string text(100'000, 'a');
  const auto told = [&](const char* target, const Json& body) {
    INFO(target);
    const http::Response answer = bench.post(target, body.dump());
    CHECK(answer.status == 400);
    CHECK(answer.body.find("maximum context length") != std::string::npos);
    if (std::string(target).starts_with("/v1/"))
      CHECK(Json::parse(answer.body)["error"]["code"] == "context_length_exceeded");
  };
  told("/v1/completions", {{"prompt", ids}});
  told("/v1/completions", {{"prompt", text}});
  told("/v1/completions", {{"prompt", {ids, {1, 2}}}, {"stream", true}});
  told("/generate/", {{"prompts", {ids}}});
  told("/get_sequence_logprobs/", {{"sequences", {ids}}, {"prompt_lengths", {3}}});
}

TEST_CASE("adapters and weights that do not fit the model") {
  Bench bench;
  support::ScratchDirectory scratch;
  const std::string before = bench.good();
  // One of another model: two hidden sizes that differ.
  model::Json other = support::small_config("qwen2");
  other["hidden_size"] = 32;
  other["num_attention_heads"] = 2;
  other["num_key_value_heads"] = 1;
  const auto wider = model::random_decoder(model::parse_hf_config(other, "test"), 1);
  model::LoraConfig lora;
  lora.target_modules = {"q_proj"};
  lora.init = model::LoraInit::random;
  model::attach_lora(*wider, lora, 1);
  model::save_adapter(*wider, scratch.path() / "wider", "tiny");
  bench.refused("/v1/load_lora_adapter", Json{{"lora_name", "a"}, {"lora_path", scratch.path() / "wider"}}.dump(), 400,
                "serve.18");
  const auto update = [&](const std::string& tensors, const std::string& number) {
    bench.refused("/http_update_weights/", R"({"params": [)" + tensors + "]}", 400, number);
  };
  const std::string fits = tensor_of("model.norm.weight", {served::decoder()->config().hidden_size},
                                     static_cast<std::size_t>(served::decoder()->config().hidden_size));
  update(fits + "," + tensor_of("no.such.parameter", {1}, 1), "serve.19");
  update(fits + "," + tensor_of("model.embed_tokens.weight", {1}, 1), "serve.19");
  update(fits + "," + tensor_of("model.embed_tokens.weight", {-1, 4}, 1), "serve.19");
  update(tensor_of("model.norm.weight", {4}, 3), "serve.19");
  update(tensor_of("model.norm.weight", {std::int64_t{1} << 40, std::int64_t{1} << 40}, 1), "serve.19");
  CHECK(bench.good() == before);
}

TEST_CASE("an update that is left half-way changes nothing, and another trainer waits its turn") {
  Bench bench;
  const std::string before = bench.good();
  const auto hidden = served::decoder()->config().hidden_size;
  const Json info = {{"names", {"model.norm.weight"}},
                     {"dtype_names", {"float32"}},
                     {"shapes", {{hidden}}},
                     {"data", {zeros(static_cast<std::size_t>(hidden))}}};
  REQUIRE(bench.post("/start_weight_update", "{}").status == 200);
  REQUIRE(bench.post("/update_weights", Json{{"update_info", info}}.dump()).status == 200);
  CHECK(bench.good() == before);
  bench.refused("/start_weight_update", "{}", 400, "serve.20");
  {  // the rest of the update breaks off in the middle of its body
    RawClient trainer(bench.server.port());
    trainer.send(
        "POST /update_weights HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{\"update_info\": {");
  }
  CHECK(bench.good() == before);
  CHECK(bench.post("/finish_weight_update", "{}").status == 200);
  CHECK(bench.good() != before);
}

TEST_CASE("requests that are halves, drip, or say the same thing twice") {
  Bench bench({.http = {.header_seconds = 0.5, .body_seconds = 0.5}});
  const std::string before = bench.good();
  const std::string body = R"({"prompt": "a", "max_tokens": 1})";
  const auto answer = [&](const std::string& headers, const std::string& sent) {
    RawClient client(bench.server.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n" + sent);
    return client.receive_all().substr(0, 12);
  };
  const std::string size = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  CHECK(answer(size, body) == "HTTP/1.1 200");
  CHECK(answer(size + "Content-Length: 3\r\n", body) == "HTTP/1.1 400");
  CHECK(answer("Content-Length: 3\r\n" + size, body) == "HTTP/1.1 400");
  CHECK(answer(size + "Transfer-Encoding: chunked\r\n", "0\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer("Content-Length: -5\r\n", body) == "HTTP/1.1 400");
  CHECK(answer("Content-Length: 5, 5\r\n", body) == "HTTP/1.1 400");
  CHECK(answer("Transfer-Encoding: chunked\r\n", "zz\r\n" + body) == "HTTP/1.1 400");
  CHECK(answer("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n" + body) == "HTTP/1.1 413");
  CHECK(answer("Content-Length: 5000\r\n", body) == "HTTP/1.1 408");
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<RawClient>(bench.server.port()));
    slow.back()->send(i % 2 == 0 ? "POST /v1/comp" : "POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{");
  }
  CHECK(bench.good() == before);  // beside them
  for (const auto& one : slow) CHECK(one->receive_all().substr(0, 12) == "HTTP/1.1 408");
  CHECK(bench.good() == before);
}

TEST_CASE("a key that comes twice opens nothing") {
  Bench bench({.api_key = "secret"});
  for (const char* second : {"Bearer secret", "Bearer other"}) {
    RawClient client(bench.server.port());
    client.send(
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
        "other\r\nAuthorization: " +
        std::string(second) + "\r\n\r\n");
    CHECK(client.receive_all().substr(0, 12) == "HTTP/1.1 401");
  }
}
