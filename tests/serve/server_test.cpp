#include <rlalgo/serve/server.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/http/client.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/serve/fields.hpp>

#include <support/catch.hpp>
#include <support/raw_client.hpp>
#include <support/scratch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using serve::Json;

namespace {

serve::ServerConfig small(serve::ServerConfig config = {}) {
  config.http.port = 0;
  config.engine.engine.threads = 1;
  return config;
}

serve::ServedModel sized(std::int64_t length) {
  serve::ServedModel out = served::model();
  out.max_model_len = length;
  return out;
}

struct Bench {
  serve::GenerationServer server;
  http::Client client;
  support::ScratchDirectory scratch;

  explicit Bench(serve::ServerConfig config = {}, std::int64_t length = 200)
      : server(sized(length), small(std::move(config))),
        client({.base_url = server.url(), .call_seconds = 20, .retries = {.retries = 0}}) {}

  http::Response call(const std::string& method, const std::string& target, const std::string& body = {},
                      http::Headers headers = {}) {
    return client.call({.method = method, .target = target, .headers = std::move(headers), .body = body}).response();
  }
  Json post(const std::string& target, const Json& body, int status = 200) {
    const http::Response response = call("POST", target, body.dump());
    INFO(response.body);
    REQUIRE(response.status == status);
    return Json::parse(response.body, nullptr, false);
  }
  Json get(const std::string& target) { return Json::parse(call("GET", target).body, nullptr, false); }

  // The data of every event of a stream.
  std::vector<Json> stream(const std::string& target, Json body) {
    body["stream"] = true;
    const http::Response response = call("POST", target, body.dump());
    REQUIRE(response.status == 200);
    std::vector<Json> out;
    std::size_t begin = 0;
    bool done = false;
    while (begin < response.body.size()) {
      const std::size_t end = response.body.find("\n\n", begin);
      REQUIRE(response.body.compare(begin, 6, "data: ") == 0);
      const std::string data = response.body.substr(begin + 6, end - begin - 6);
      begin = end + 2;
      REQUIRE(!done);
      done = data == "[DONE]";
      if (!done) out.push_back(Json::parse(data));
    }
    CHECK(done);
    return out;
  }
};

// What the engine gives for ids directly.
data::Completion direct(const std::vector<data::TokenId>& ids, std::int64_t tokens) {
  const auto decoder = served::decoder();
  inference::LocalEngine engine(decoder->config(), decoder->weights());
  const inference::Request request{.prompt = ids};
  return engine.generate(std::span(&request, 1), {.temperature = 0, .max_new_tokens = tokens, .stop_ids = {524}},
                         {.seed = 0})[0][0];
}

const std::vector<data::TokenId> prompt = {40, 41, 42, 43};

}  // namespace

TEST_CASE("health, models, version, tokens") {
  Bench bench;
  CHECK(bench.call("GET", "/health").body.empty());
  CHECK(bench.get("/health/") == Json{{"status", "ok"}});
  CHECK(bench.get("/get_world_size/")["world_size"] == 1);
  CHECK(bench.get("/v1/models")["data"][0]["id"] == "tiny");
  CHECK(bench.get("/v1/models")["data"][0]["max_model_len"] == 200);
  CHECK(bench.get("/v1/models/tiny")["id"] == "tiny");
  CHECK(bench.get("/version")["version"].is_string());
  const Json tokens = bench.post("/tokenize", {{"prompt", "one two"}, {"return_token_strs", true}});
  CHECK(tokens["count"] == tokens["tokens"].size());
  CHECK(bench.post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"] == "one two");
  CHECK(bench.get("/openapi.json")["paths"].contains("/generate/"));
}

TEST_CASE("a completion is the engine's, whole and as a stream") {
  Bench bench;
  const data::Completion expected = direct(prompt, 12);
  const Json body = {{"model", "tiny"},  {"prompt", prompt}, {"temperature", 0},
                     {"max_tokens", 12}, {"logprobs", 2},    {"return_token_ids", true}};
  const Json whole = bench.post("/v1/completions", body);
  const Json& choice = whole["choices"][0];
  CHECK(choice["token_ids"] == expected.ids);
  CHECK(choice["prompt_token_ids"] == prompt);
  CHECK(choice["logprobs"]["token_logprobs"].size() == expected.ids.size());
  for (std::size_t t = 0; t < expected.ids.size(); ++t)
    CHECK(choice["logprobs"]["token_logprobs"][t].get<float>() == expected.log_probs[t]);
  CHECK(choice["finish_reason"] == "length");
  CHECK(whole["usage"]["total_tokens"] == 16);

  std::string text;
  std::vector<data::TokenId> ids;
  const auto events = bench.stream("/v1/completions", body);
  for (const Json& event : events) {
    text += event["choices"][0]["text"].get<std::string>();
    for (const Json& id : event["choices"][0]["token_ids"]) ids.push_back(id.get<data::TokenId>());
    CHECK(event["choices"][0]["finish_reason"].is_null() == (&event != &events.back()));
  }
  CHECK(text == choice["text"].get<std::string>());
  CHECK(ids == expected.ids);
}

TEST_CASE("lists, n, echo, prompt log-probs and stop strings") {
  Bench bench;
  const Json list = bench.post(
      "/v1/completions",
      {{"prompt", {{1, 2}, {3, 4}}}, {"n", 2}, {"max_tokens", 3}, {"ignore_eos", true}, {"return_token_ids", true}});
  REQUIRE(list["choices"].size() == 4);
  CHECK(list["choices"][3]["index"] == 3);
  CHECK(list["choices"][3]["prompt_token_ids"] == std::vector<int>{3, 4});
  CHECK(list["usage"]["completion_tokens"] == 12);
  const Json twice =
      bench.post("/v1/completions",
                 {{"prompt", {{1, 2}, {1, 2}}}, {"max_tokens", 8}, {"ignore_eos", true}, {"return_token_ids", true}});
  CHECK(twice["choices"][0]["token_ids"] != twice["choices"][1]["token_ids"]);

  const Json echoed =
      bench.post("/v1/completions",
                 {{"prompt", "one two"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 0}});
  const Json& choice = echoed["choices"][0];
  CHECK(choice["text"] == "one two");
  CHECK(choice["logprobs"]["token_logprobs"][0].is_null());
  CHECK(choice["prompt_logprobs"][0].is_null());
  CHECK(choice["prompt_logprobs"].size() == choice["logprobs"]["tokens"].size());
  CHECK(choice["prompt_logprobs"][1].begin().value()["logprob"] == choice["logprobs"]["token_logprobs"][1]);
  CHECK(echoed["usage"]["completion_tokens"] == 0);

  const Json free = {{"prompt", prompt},
                     {"temperature", 0},
                     {"max_tokens", 30},
                     {"ignore_eos", true},
                     {"allowed_token_ids", {64, 65, 66}},
                     {"logit_bias", {{"65", 1}}}};
  const std::string text = bench.post("/v1/completions", free)["choices"][0]["text"];
  REQUIRE(text.size() > 8);
  Json stopped = free;
  stopped["stop"] = text.substr(4, 2);
  const Json cut = bench.post("/v1/completions", stopped)["choices"][0];
  CHECK(cut["text"] == text.substr(0, text.find(text.substr(4, 2))));
  CHECK(cut["stop_reason"] == text.substr(4, 2));
  CHECK(cut["finish_reason"] == "stop");
  stopped["include_stop_str_in_output"] = true;
  std::string streamed;
  for (const Json& event : bench.stream("/v1/completions", stopped))
    streamed += event["choices"][0]["text"].get<std::string>();
  CHECK(streamed == text.substr(0, text.find(text.substr(4, 2)) + 2));
}

TEST_CASE("a conversation, whole and as a stream, with the fields that carry tokens on") {
  Bench bench;
  const Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                     {"temperature", 0},
                     {"max_tokens", 6},
                     {"logprobs", true},
                     {"top_logprobs", 2},
                     {"return_token_ids", true},
                     {"ignore_eos", true}};
  const Json whole = bench.post("/v1/chat/completions", body);
  const Json& message = whole["choices"][0]["message"];
  CHECK(message["prompt_token_ids"] == whole["prompt_token_ids"]);
  CHECK(message["generation_token_ids"] == whole["choices"][0]["token_ids"]);
  CHECK(message["generation_log_probs"].size() == 6);
  CHECK(whole["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size() == 2);
  std::string text;
  for (const Json& event : bench.stream("/v1/chat/completions", body))
    text += event["choices"][0]["delta"].value("content", "");
  CHECK(text == message["content"].get<std::string>());
}

TEST_CASE("TRL's routes") {
  Bench bench;
  const data::Completion expected = direct(prompt, 5);
  const Json out = bench.post("/generate/", {{"prompts", {prompt, {7, 8}}},
                                             {"n", 2},
                                             {"temperature", 0},
                                             {"max_tokens", 16},
                                             {"logprobs", 3},
                                             {"images", nullptr},
                                             {"generation_kwargs", {{"max_tokens", 5}}}});
  CHECK(out["prompt_ids"].size() == 2);
  REQUIRE(out["completion_ids"].size() == 4);
  CHECK(out["completion_ids"][0] == expected.ids);
  for (std::size_t t = 0; t < expected.ids.size(); ++t) {
    CHECK(out["logprobs"][0][t].size() == 3);  // greedy: the drawn one is among them
    CHECK(out["logprobs"][0][t][0].get<float>() == expected.log_probs[t]);
    CHECK(out["logprob_token_ids"][0][t][0] == expected.ids[t]);
  }
  CHECK(bench.post("/generate/", {{"prompts", {"a"}}, {"logprobs", nullptr}})["logprobs"].is_null());
  const Json chat = bench.post("/chat/", {{"messages", {{{{"role", "user"}, {"content", "hi"}}}}}, {"max_tokens", 2}});
  CHECK(chat["completion_ids"].size() == 1);

  std::vector<data::TokenId> sequence = prompt;
  sequence.insert(sequence.end(), expected.ids.begin(), expected.ids.end());
  const Json ask = {{"sequences", {sequence, {9}}}, {"prompt_lengths", {4, 0}}, {"top_logprobs", 2}};
  const Json scored = bench.post("/get_sequence_logprobs/", ask);
  REQUIRE(scored["logprobs"][0].size() == expected.ids.size());
  for (std::size_t t = 0; t < expected.ids.size(); ++t)
    CHECK(scored["logprobs"][0][t][0].get<float>() == expected.log_probs[t]);
  CHECK(scored["logprobs"][1] == Json::array({Json::array()}));
  Json binary = ask;
  binary["response_format"] = "binary";
  const Json packed = bench.post("/get_sequence_logprobs/", binary);
  CHECK(packed["shape"] == std::vector<std::int64_t>{2, static_cast<std::int64_t>(expected.ids.size()), 2});
  const auto bytes = core::from_base64(packed["actual_logprobs_b64"].get<std::string>());
  REQUIRE(bytes->size() == 4 * 2 * expected.ids.size());
  std::vector<float> values(2 * expected.ids.size());
  std::memcpy(values.data(), bytes->data(), bytes->size());
  CHECK(values[0] == expected.log_probs[0]);
  CHECK(values.back() == -std::numeric_limits<float>::infinity());
  CHECK(bench.post("/reset_prefix_cache/", Json::object())["message"] ==
        "Request received, resetting prefix cache status: True");
}

TEST_CASE("errors have the form of their protocol, a number, and cost nobody else anything") {
  Bench bench({.strict = false, .body_limit = 1 << 20});
  const auto status = [&](const char* method, const char* target, const std::string& body) {
    return bench.call(method, target, body).status;
  };
  CHECK(bench.post("/v1/completions", {{"model", "nobody"}, {"prompt", "x"}}, 404)["error"]["code"] == 404);
  const Json error = bench.post("/v1/completions", {{"prompt", "x"}, {"max_tokens", -1}}, 400)["error"];
  CHECK(error["param"] == "max_tokens");
  CHECK(error["message"].get<std::string>().starts_with("[rlalgo.serve.4]"));
  CHECK(bench.post("/generate/", {{"prompts", 5}}, 400)["detail"].get<std::string>().starts_with("[rlalgo.serve.3]"));
  CHECK(status("GET", "/nothing", "") == 404);
  CHECK(status("GET", "/v1/completions", "") == 405);
  CHECK(status("POST", "/v1/completions", "{") == 400);
  CHECK(status("POST", "/v1/completions", std::string(2 << 20, ' ')) == 413);
  CHECK(status("POST", "/init_communicator/", "{}") == 400);
  for (const char* fields :
       {R"("max_tokens": 0)", R"("logprobs": 21)", R"("prompt_logprobs": -1)", R"("stream_options": {})",
        R"("prompt_logprobs": 1, "stream": true)", R"("logprobs": -2)", R"("truncate_prompt_tokens": 0)"}) {
    INFO(fields);
    CHECK(status("POST", "/v1/completions", std::string(R"({"prompt": "x", )") + fields + "}") == 400);
  }
  CHECK(status("POST", "/v1/chat/completions", R"({"messages": [{"role": "user"}]})") == 400);
  CHECK(status("POST", "/v1/completions", R"({"prompt": "x", "no_such_field": 1})") == 200);
  Bench strict({.strict = true});
  strict.post("/v1/completions", {{"prompt", "x"}, {"no_such_field", 1}}, 400);
}

TEST_CASE("a key is asked for, everywhere but at the open routes") {
  Bench bench({.api_key = "secret"});
  for (const char* key : {"", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"})
    CHECK(bench.call("GET", "/v1/models", {}, {{"Authorization", key}}).status == 401);
  CHECK(bench.call("GET", "/v1/models").status == 401);
  CHECK(bench.call("POST", "/reset_prefix_cache").status == 401);
  CHECK(bench.call("GET", "/nowhere").status == 401);
  CHECK(bench.call("GET", "/v1/models", {}, {{"Authorization", "bearer secret"}}).status == 200);
  for (const char* open : {"/health", "/health/", "/ping", "/version", "/metrics"})
    CHECK(bench.call("GET", open).status == 200);
  const auto everywhere = [](bool open) {
    return support::raised_by(
        [&] { serve::GenerationServer(served::model(), small({.http = {.host = "0.0.0.0"}, .open_to_all = open})); });
  };
  CHECK(everywhere(false).starts_with("serve.22"));
  CHECK(everywhere(true) == "nothing");
}

TEST_CASE("adapters are loaded, asked for by name, and read from allowed paths alone") {
  support::ScratchDirectory scratch;
  served::write_adapter(scratch.path() / "in/v0", 1);
  served::write_adapter(scratch.path() / "out/v0", 2);
  Bench bench({.allowed_paths = {scratch.path() / "in"}});
  const auto ids = [&](const char* model) {
    return bench.post("/v1/completions", {{"model", model},
                                          {"prompt", prompt},
                                          {"temperature", 0},
                                          {"max_tokens", 9},
                                          {"ignore_eos", true},
                                          {"return_token_ids", true}})["choices"][0]["token_ids"];
  };
  const auto load = [&](const char* name, const std::filesystem::path& path, int status) {
    bench.post("/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", path.string()}}, status);
  };
  const Json base = ids("tiny");
  load("a", scratch.path() / "in/v0", 200);
  CHECK(ids("a") != base);
  CHECK(ids("tiny") == base);
  CHECK(bench.get("/v1/models")["data"][1]["parent"] == "tiny");
  load("a", scratch.path() / "in/v0", 400);
  load("b", scratch.path() / "out/v0", 403);
  load("b", scratch.path() / "in/../out/v0", 403);
  load("b", scratch.path() / "in/none", 404);
  load("tiny", scratch.path() / "in/v0", 400);
  const auto generated = [&] {
    return bench.post("/generate/", {{"prompts", {prompt}},
                                     {"temperature", 0},
                                     {"max_tokens", 9},
                                     {"generation_kwargs", {{"ignore_eos", true}}}})["completion_ids"][0];
  };
  CHECK(generated() == base);
  const Json set = {
      {"lora_name", "active_lora"}, {"lora_int_id", 1}, {"lora_path", (scratch.path() / "in/v0").string()}};
  CHECK(bench.post("/set_lora_adapter/", set) == Json{{"status", "ok"}});
  CHECK(generated() == ids("a"));
  bench.post("/clear_lora_adapter/", Json::object());
  CHECK(generated() == base);
  load("axolotl-lora", scratch.path() / "in/v0", 200);  // what axolotl's trainers call theirs
  CHECK(generated() == ids("a"));
  bench.post("/v1/unload_lora_adapter", {{"lora_name", "axolotl-lora"}});
  CHECK(generated() == base);
  bench.post("/v1/unload_lora_adapter", {{"lora_name", "axolotl-lora"}}, 404);
}

TEST_CASE("weights over HTTP are applied whole or not at all") {
  Bench bench;
  const auto decoder = served::decoder();
  const auto norm = decoder->weights().final_norm.detach().mul(3).contiguous();
  const auto encoded = core::base64({reinterpret_cast<const unsigned char*>(norm.const_data_ptr<float>()),
                                     static_cast<std::size_t>(norm.numel()) * 4});
  const Json tensor = {
      {"name", "model.norm.weight"}, {"dtype", "torch.float32"}, {"shape", norm.sizes().vec()}, {"data", encoded}};
  Json stranger = tensor;
  stranger["name"] = "model.norm.bias";
  const auto first = [&] {
    return bench.post("/generate/",
                      {{"prompts", {prompt}}, {"temperature", 0}, {"max_tokens", 1}})["logprobs"][0][0][0];
  };
  const Json before = first();
  bench.post("/http_update_weights/", {{"params", {tensor, stranger}}}, 400);
  CHECK(first() == before);
  CHECK(bench.post("/http_update_weights/", {{"params", {tensor}}})["message"] == "HTTP weight update for 1 params");
  CHECK(first() != before);
  CHECK(bench.get("/weight_info")["weight_version"] == "1");
}

TEST_CASE("weights in three acts, over HTTP or from a file") {
  support::ScratchDirectory scratch;
  Bench bench({.allowed_paths = {scratch.path()}});
  const auto decoder = served::decoder();
  const auto norm = decoder->weights().final_norm.detach().mul(3).contiguous();
  const auto first = [&] {
    return bench.post("/generate/",
                      {{"prompts", {prompt}}, {"temperature", 0}, {"max_tokens", 1}})["logprobs"][0][0][0];
  };
  const Json before = first();
  Json update = {{"names", {"model.norm.weight"}}, {"dtype_names", {"float32"}}, {"shapes", {norm.sizes().vec()}}};
  bench.post("/update_weights", {{"update_info", update}}, 400);
  bench.post("/init_weight_transfer_engine", {{"init_info", {{"master_address", "127.0.0.1"}}}}, 400);
  bench.post("/init_weight_transfer_engine", {{"init_info", {{"backend", "http"}}}});
  bench.post("/start_weight_update", Json::object());
  bench.post("/start_weight_update", Json::object(), 400);
  bench.post("/update_weights", {{"update_info", update}}, 400);  // over a broadcast
  update["data"] = {core::base64({reinterpret_cast<const unsigned char*>(norm.const_data_ptr<float>()),
                                  static_cast<std::size_t>(norm.numel()) * 4})};
  bench.post("/update_weights", {{"update_info", update}});
  CHECK(first() == before);
  bench.post("/finish_weight_update", {{"weight_version", "v9"}});
  const Json after = first();
  CHECK(after != before);
  CHECK(bench.get("/weight_info")["weight_version"] == "v9");

  bench.post("/start_weight_update", {{"session", "a"}});
  bench.post("/start_weight_update", {{"session", "b"}}, 400);
  bench.post("/update_weights", {{"update_info", update}}, 400);
  bench.post("/update_weights", {{"update_info", update}, {"session", "a"}});
  bench.post("/finish_weight_update", {{"weight_version", "v10"}, {"session", "b"}}, 400);
  for (int twice = 0; twice < 2; ++twice)
    bench.post("/finish_weight_update", {{"weight_version", "v10"}, {"session", "a"}});
  const Json named = bench.post("/generate/", {{"prompts", {prompt}}, {"max_tokens", 1}});
  CHECK(named["weights_version_names"] == Json{"v10"});
  CHECK(bench.post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}})["choices"][0]["weights_version_name"] ==
        "v10");

  model::write_safetensors(scratch.path() / "new.safetensors",
                           {{"model.norm.weight", decoder->weights().final_norm.detach()}});
  bench.post("/start_weight_update", Json::object());
  bench.post("/update_weights", {{"update_info", {{"path", "/etc"}}}}, 403);
  bench.post("/update_weights", {{"update_info", {{"path", scratch.path().string()}}}});
  bench.post("/finish_weight_update", Json::object());
  CHECK(first() == before);
  CHECK(bench.get("/server_info")["vllm_config"].contains("weight_transfer_config"));
}

TEST_CASE("weights as the bytes of a safetensors file: whole, or not at all") {
  Bench bench;
  const auto norm = served::decoder()->weights().final_norm.detach().mul(3).contiguous();
  const auto send = [&](const std::string& body, const std::string& type = "application/octet-stream") {
    return bench.call("POST", "/update_weights", body, {{"Content-Type", type}});
  };
  const auto sums = [&] { return bench.post("/weight_checker", {{"action", "checksum"}})["checksums"]; };
  const Json before = sums();
  const std::string good = model::safetensors_bytes({{"model.norm.weight", norm}}, {{"session", "a"}});
  CHECK(send(good).status == 400);  // nothing is under way
  bench.post("/start_weight_update", {{"session", "a"}});
  CHECK(send(good, "application/json").status == 400);
  CHECK(send(model::safetensors_bytes({{"model.norm.weight", norm}}, {{"session", "b"}})).status == 400);
  CHECK(send(model::safetensors_bytes({{"model.norm.weight", norm}})).status == 400);  // without its name
  CHECK(send(model::safetensors_bytes({{"nobody", norm}, {"model.norm.weight", norm}}, {{"session", "a"}})).status ==
        400);
  CHECK(send(model::safetensors_bytes({{"model.norm.weight", norm.view({1, -1})}}, {{"session", "a"}})).status == 400);
  const http::Response cut = send(good.substr(0, good.size() - 1));
  CHECK(cut.status == 400);
  CHECK(cut.body.find("[rlalgo.model.5]") != std::string::npos);
  CHECK(send("").status == 400);
  bench.post("/finish_weight_update", {{"weight_version", "v1"}, {"session", "a"}});
  CHECK(sums() == before);
  bench.post("/start_weight_update", {{"session", "a"}});
  for (int twice = 0; twice < 2; ++twice) CHECK(send(good, "application/octet-stream; a=b").status == 200);
  CHECK(sums() == before);
  bench.post("/finish_weight_update", {{"weight_version", "v2"}, {"session", "a"}});
  const Json after = sums();
  bench.post("/start_weight_update", Json::object());
  const auto half =
      model::safetensors_bytes({{"model.norm.weight", served::decoder()->weights().final_norm.detach()}}, {});
  CHECK(send(half).status == 200);
  bench.post("/finish_weight_update", Json::object());
  CHECK(sums() == before);
  CHECK(after != before);
  CHECK(after["model.norm.weight"] != before["model.norm.weight"]);
}

TEST_CASE("texts are held to an expression, and calls to a tool's schema") {
  Bench bench({}, 500);
  const auto text = [&](Json fields) {
    fields["prompt"] = prompt;
    fields["max_tokens"] = 60;
    const Json choice = bench.post("/v1/completions", fields)["choices"][0];
    CHECK(choice["finish_reason"] == "stop");
    return choice["text"].get<std::string>();
  };
  const std::string date = text({{"structured_outputs", {{"regex", "[0-9]{3}-[a-f]{2}"}}}});
  CHECK(date.size() == 6);
  CHECK(date[3] == '-');
  CHECK(text({{"guided_choice", {"Lyon"}}}) == "Lyon");
  const Json json = Json::parse(
      text({{"response_format",
             {{"type", "json_schema"}, {"json_schema", {{"schema", Json::parse(R"({"type": "object", "properties":
                                          {"n": {"enum": [1, 2]}, "ok": {"type": "boolean"}}, "required": ["n", "ok"]})")}}}}}}));
  CHECK(json["ok"].is_boolean());
  const Json out =
      bench.post("/generate/", {{"prompts", {prompt}}, {"max_tokens", 9}, {"structured_outputs_regex", "x"}});
  CHECK(out["completion_ids"][0].size() == 2);  // and the end
  bench.post("/v1/completions", {{"prompt", "x"}, {"guided_regex", "(?=a)"}}, 400);
  bench.post("/v1/completions", {{"prompt", "x"}, {"guided_regex", "a"}, {"min_tokens", 3}}, 400);

  const Json tool = Json::parse(R"({"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}}})");
  Json ask = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 200}, {"tools", {tool}}};
  ask["tool_choice"] = "required";
  const Json called = bench.post("/v1/chat/completions", ask)["choices"][0];
  CHECK(called["finish_reason"] == "tool_calls");
  CHECK(called["message"]["tool_calls"][0]["function"]["name"] == "weather");
  const Json arguments = Json::parse(called["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>());
  CHECK((arguments["city"] == "Oslo" || arguments["city"] == "Rome"));
  std::string name, streamed;
  for (const Json& event : bench.stream("/v1/chat/completions", ask))
    for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
      name += call["function"]["name"].get<std::string>();
      streamed += call["function"]["arguments"].get<std::string>();
    }
  CHECK(name == "weather");
  CHECK(Json::parse(streamed).contains("city"));
  ask["tool_choice"] = {{"type", "function"}, {"function", {{"name", "nobody"}}}};
  bench.post("/v1/chat/completions", ask, 400);
}

TEST_CASE("a pause, an abort, a client that leaves") {
  Bench bench;
  CHECK(bench.post("/pause?mode=keep", Json::object())["status"] == "paused");
  CHECK(bench.get("/is_paused")["is_paused"] == true);
  bench.post("/pause?mode=sideways", Json::object(), 400);
  const std::string body = Json{{"prompt", prompt}, {"max_tokens", 150}, {"ignore_eos", true}}.dump();
  {
    support::RawClient client(bench.server.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    for (int i = 0; i < 500 && bench.server.counts().pending == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(bench.server.counts().pending == 1);
  }  // leaves
  for (int i = 0; i < 500 && bench.server.counts().pending > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(bench.server.counts().pending == 0);
  CHECK(bench.post("/abort_requests", Json::object())["aborted"] == 0);
  CHECK(bench.post("/resume", Json::object())["status"] == "resumed");
  bench.post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}});
}

TEST_CASE("a server that stops refuses what is new and finishes what it has") {
  auto bench = std::make_unique<Bench>();
  http::Client other({.base_url = bench->server.url(), .call_seconds = 20, .retries = {.retries = 0}});
  int status = 0;
  std::thread asking([&] {
    status = other
                 .call({.method = "POST",
                        .target = "/v1/completions",
                        .body = Json{{"prompt", prompt}, {"max_tokens", 190}, {"ignore_eos", true}}.dump()})
                 .response()
                 .status;
  });
  for (int i = 0; i < 500 && bench->server.counts().scheduler.running == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  bench->server.stop(20);
  asking.join();
  CHECK(status == 200);
  CHECK(!other.call({.target = "/health"}).answered());
}

TEST_CASE("a trainer says what is to be drawn, and gets what its own engine draws") {
  Bench bench;
  const auto decoder = served::decoder();
  inference::LocalEngine engine(decoder->config(), decoder->weights(), {.threads = 1});
  const std::vector<inference::Request> requests = {{.prompt = {5, 6, 7}, .count = 2, .first_index = 90},
                                                    {.prompt = {9}, .count = 2, .first_index = 4, .first_position = 3}};
  const inference::SamplingConfig sampling{.max_new_tokens = 9, .stop_ids = {524}};
  const auto expected = engine.generate(requests, sampling, {.seed = 8, .step = 3});
  const Json draws = {{"seed", 8}, {"step", 3}, {"first_indices", {90, 4}}, {"first_positions", {0, 3}}};
  Json body = {{"prompts", {{5, 6, 7}, {9}}}, {"n", 2}, {"max_tokens", 9}, {"draws", draws}};
  for (int twice = 0; twice < 2; ++twice) {
    const Json ids = bench.post("/generate/", body)["completion_ids"];
    for (std::size_t k = 0; k < 4; ++k) CHECK(ids[k] == Json(expected[k / 2][k % 2].ids));
  }
  for (const auto& [name, value] : {std::pair<const char*, Json>{"seed", -1},
                                    {"step", 1.5},
                                    {"first_indices", {1}},
                                    {"first_indices", {1, -2}},
                                    {"first_positions", {0, 4294967296}},
                                    {"first_positions", 5}}) {
    Json bad = body;
    bad["draws"][name] = value;
    bench.post("/generate/", bad, 400);
  }
  body["draws"] = 5;
  bench.post("/generate/", body, 400);
}

TEST_CASE("token ids in, token ids out, with the version of the weights") {
  Bench bench;
  const std::vector<int> ids = {5, 6, 7, 8};
  const Json params = {{"temperature", 0}, {"max_tokens", 6}, {"logprobs", 2}, {"prompt_logprobs", 0}};
  const Json body = {{"token_ids", ids}, {"sampling_params", params}, {"request_id", "mine"}};
  const Json out = bench.post("/inference/v1/generate", body);
  const Json same = bench.post("/v1/completions", {{"prompt", ids},
                                                   {"temperature", 0},
                                                   {"max_tokens", 6},
                                                   {"logprobs", 2},
                                                   {"prompt_logprobs", 0},
                                                   {"return_token_ids", true}})["choices"][0];
  CHECK(out["request_id"] == "mine");
  const Json& choice = out["choices"][0];
  CHECK(choice["token_ids"] == same["token_ids"]);
  CHECK(choice["finish_reason"] == same["finish_reason"]);
  CHECK(out["prompt_logprobs"] == same["prompt_logprobs"]);
  REQUIRE(choice["logprobs"]["content"].size() == same["token_ids"].size());
  for (std::size_t t = 0; t < same["token_ids"].size(); ++t)
    CHECK(choice["logprobs"]["content"][t]["logprob"] == same["logprobs"]["token_logprobs"][t]);
  CHECK(choice["weight_versions"] ==
        Json::array({{{"version", "0"}, {"start", 0}, {"end", choice["token_ids"].size()}}}));
  Json two = body;
  two["sampling_params"] = {{"n", 2}};
  two.erase("request_id");
  const Json plain = bench.post("/inference/v1/generate", two);
  CHECK(plain["choices"].size() == 2);
  CHECK(plain["choices"][1]["index"] == 1);
  CHECK(plain["choices"][0]["logprobs"].is_null());
  Json limited = body;
  limited["stream"] = true;  // with prompt_logprobs
  bench.post("/inference/v1/generate", limited, 400);
  for (const auto& [name, value] : {std::pair<const char*, Json>{"stream", 1},
                                    {"stream_options", Json::object()},
                                    {"features", {{"image", 1}}},
                                    {"output_mode", "text"},
                                    {"token_ids", {99999}},
                                    {"token_ids", Json::array()},
                                    {"token_ids", "x"},
                                    {"sampling_params", 5},
                                    {"sampling_params", nullptr},
                                    {"sampling_params", {{"max_tokens", 0}}},
                                    {"sampling_params", {{"logprobs", 21}}}}) {
    Json bad = body;
    bad[name] = value;
    INFO(bad.dump());
    bench.post("/inference/v1/generate", bad, 400);
  }
  Json other = body;
  other["model"] = "nobody";
  bench.post("/inference/v1/generate", other, 404);
}

TEST_CASE("token ids in, token ids out as they are drawn") {
  Bench bench;
  Json body = {{"token_ids", {5, 6, 7, 8}},
               {"request_id", "mine"},
               {"sampling_params", {{"n", 2}, {"seed", 3}, {"max_tokens", 6}, {"logprobs", 1}}}};
  const Json whole = bench.post("/inference/v1/generate", body);
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const auto events = bench.stream("/inference/v1/generate", body);
  Json ids = {Json::array(), Json::array()}, log_probs = ids;
  std::size_t drawn = 0;
  for (const Json& event : events) {
    CHECK(event["request_id"] == "mine");
    if (event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    const auto index = choice["index"].get<std::size_t>();
    CHECK(choice["token_ids"].size() == 1);  // each as it is drawn
    for (const Json& id : choice["token_ids"]) ids[index].push_back(id);
    for (const Json& one : choice["logprobs"]["content"]) log_probs[index].push_back(one);
    CHECK(event["usage"]["completion_tokens"] == ids[index].size());
    ++drawn;
    const bool last = ids[index].size() == whole["choices"][index]["token_ids"].size();
    CHECK(choice["finish_reason"] == (last ? whole["choices"][index]["finish_reason"] : Json(nullptr)));
    CHECK(choice.contains("weight_versions") == last);
    if (last) CHECK(choice["weight_versions"] == whole["choices"][index]["weight_versions"]);
  }
  for (std::size_t j = 0; j < 2; ++j) {
    CHECK(ids[j] == whole["choices"][j]["token_ids"]);
    CHECK(log_probs[j] == whole["choices"][j]["logprobs"]["content"]);
  }
  CHECK(events.back()["usage"]["prompt_tokens"] == 4);
  CHECK(events.back()["usage"]["completion_tokens"] == drawn);
}

TEST_CASE("checksums follow the weights") {
  Bench bench;
  const Json sums = bench.post("/weight_checker", {{"action", "checksum"}})["checksums"];
  CHECK(sums["model.norm.weight"].get<std::string>().size() == 16);
  const auto compare = [&](const Json& baseline) {
    return bench.post("/weight_checker", {{"action", "compare"}, {"baseline", baseline}});
  };
  CHECK(compare(sums) == Json{{"match", true}, {"mismatches", Json::array()}});
  Json wrong = sums;
  wrong["model.norm.weight"] = "0";
  wrong["nobody"] = 5;
  CHECK(compare(wrong)["mismatches"] == Json{"model.norm.weight", "nobody"});
  Json fewer = sums;
  fewer.erase("model.norm.weight");
  CHECK(compare(fewer)["match"] == false);
  const auto norm = served::decoder()->weights().final_norm.detach().mul(3).contiguous();
  bench.post("/http_update_weights/",
             {{"params",
               {{{"name", "model.norm.weight"},
                 {"dtype", "torch.float32"},
                 {"shape", norm.sizes().vec()},
                 {"data", core::base64({reinterpret_cast<const unsigned char*>(norm.const_data_ptr<float>()),
                                        static_cast<std::size_t>(norm.numel()) * 4})}}}}});
  CHECK(compare(sums)["mismatches"] == Json{"model.norm.weight"});
  for (const Json& bad : {Json{{"action", "compare"}}, Json{{"action", "compare"}, {"baseline", 5}},
                          Json{{"action", "reset"}}, Json{{"action", "snap"}}, Json::object()})
    bench.post("/weight_checker", bad, 400);
}

TEST_CASE("a server that sleeps gives its cache back, and lets requests wait") {
  Bench bench;
  const Json ask = {{"prompts", {std::vector<int>(70, 9)}}, {"max_tokens", 4}, {"temperature", 0}};
  const Json before = bench.post("/generate/", ask)["completion_ids"];
  for (int i = 0; i < 100 && bench.server.counts().scheduler.pages_kept == 0; ++i)  // an answer comes before the counts
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(bench.server.counts().scheduler.pages_kept > 0);
  CHECK(bench.post("/sleep?level=1", {})["kept"] == Json{"weights"});
  CHECK(bench.get("/is_sleeping")["is_sleeping"] == true);
  bench.post("/resume", {}, 409);
  Json late;
  std::thread client([&] {
    http::Client another({.base_url = bench.server.url(), .call_seconds = 20, .retries = {.retries = 0}});
    late = Json::parse(
        another.call({.method = "POST", .target = "/generate/", .headers = {}, .body = ask.dump()}).response().body);
  });
  CHECK(bench.post("/wake_up?tags=weights", {})["status"] == "asleep");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(late.is_null());
  CHECK(bench.server.counts().scheduler.pages_kept == 0);
  CHECK(bench.post("/wake_up?tags=weights&tags=kv_cache", {})["status"] == "awake");
  client.join();
  CHECK(late["completion_ids"] == before);
  CHECK(bench.get("/is_sleeping")["is_sleeping"] == false);
  CHECK(bench.post("/wake_up", {})["status"] == "awake");
  bench.post("/sleep?level=7", {}, 400);
  bench.post("/sleep?mode=keep", {}, 400);
  bench.post("/wake_up?tags=models", {}, 400);
  CHECK(bench.get("/is_sleeping")["is_sleeping"] == false);
  bench.post("/sleep?level=2&mode=wait", {});
  bench.post("/wake_up", {});
}

TEST_CASE("sampling that a request leaves out is the model's own, but on the routes of TRL") {
  serve::ServedModel greedy = served::model();
  greedy.sampling = {.temperature = 0.0, .max_tokens = 5};
  serve::GenerationServer server(std::move(greedy), small());
  http::Client client({.base_url = server.url(), .call_seconds = 20, .retries = {.retries = 0}});
  const auto post = [&](const char* target, const Json& body) {
    return Json::parse(
        client.call({.method = "POST", .target = target, .headers = {}, .body = body.dump()}).response().body);
  };
  const Json request = {{"prompt", {5, 6, 7}}, {"n", 3}, {"ignore_eos", true}, {"return_token_ids", true}};
  const Json choices = post("/v1/completions", request)["choices"];
  CHECK(choices[0]["token_ids"].size() == 5);
  CHECK(choices[1]["token_ids"] == choices[0]["token_ids"]);
  CHECK(choices[2]["token_ids"] == choices[0]["token_ids"]);
  Json drawn = request;
  drawn["temperature"] = 3.0;
  drawn["max_tokens"] = 3;
  const Json warm = post("/v1/completions", drawn)["choices"];
  CHECK(warm[0]["token_ids"].size() == 3);
  CHECK(warm[1]["token_ids"] != warm[0]["token_ids"]);
  const Json trl = post("/generate/", {{"prompts", {{5, 6, 7}}}, {"n", 2}, {"ignore_eos", true}, {"max_tokens", 8}});
  CHECK(trl["completion_ids"][0].size() == 8);
  CHECK(trl["completion_ids"][0] != trl["completion_ids"][1]);
}
