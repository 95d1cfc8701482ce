#include <rlalgo/remote/vllm_client.hpp>

#include <optional>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/raw_server.hpp>

using namespace rlalgo;
using Json = remote::VllmClient::Json;

namespace {

remote::VllmConfig config(const std::string& url) {
  return {.server = {.base_url = url, .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = 0}},
          .start_seconds = 0.0,
          .vocab_size = 100};
}

const char* const trl_routes = R"({"paths": {"/generate/": {}}})";

// What a server says to questions that are not for completions.
std::optional<std::pair<int, std::string>> of_itself(const std::string& path) {
  if (path == "/health/") return std::pair{200, std::string("{}")};
  if (path == "/openapi.json") return std::pair{200, std::string(trl_routes)};
  if (path == "/version") return std::pair{404, std::string()};
  return std::nullopt;
}

// What the client makes of one answer to two completions of one prompt.
std::vector<data::Completion> ask(const std::string& answer, remote::VllmConfig (*make)(const std::string&) = config) {
  rlalgo::support::HttpServer server([&](const std::string& path, const std::string&) {
    return of_itself(path).value_or(std::pair{200, answer});
  });
  remote::VllmClient client(make(server.url()));
  const std::vector<inference::Request> requests = {{.prompt = {1, 2}, .count = 2}};
  return client.generate(requests, {.max_new_tokens = 3, .stop_ids = {7}}, {})[0];
}

}  // namespace

TEST_CASE("a request carries the sampling parameters, the answer goes back to its prompts") {
  rlalgo::support::HttpServer server(
      [](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
        if (const auto known = of_itself(path)) return *known;
        const Json request = Json::parse(body);
        Json answer = {{"completion_ids", Json::array()}, {"logprobs", nullptr}, {"logprob_token_ids", nullptr}};
        for (const Json& prompt : request["prompts"])
          for (int j = 0; j < request["n"]; ++j) answer["completion_ids"].push_back({prompt[0], j, 7});
        return {200, answer.dump()};
      });
  remote::VllmConfig settings = config(server.url());
  settings.generation_kwargs = {{"stop", "x"}};
  remote::VllmClient client(settings);
  const std::vector<inference::Request> requests = {
      {.prompt = {11, 12}, .count = 2}, {.prompt = {21}, .count = 1}, {.prompt = {31}, .count = 2}};
  const auto out = client.generate(requests,
                                   {.temperature = 0.5,
                                    .top_p = 0.9,
                                    .top_k = 4,
                                    .min_p = 0.1,
                                    .repetition_penalty = 1.2,
                                    .max_new_tokens = 9,
                                    .stop_ids = {7}},
                                   {});
  REQUIRE(out.size() == 3);
  CHECK(out[0].size() == 2);
  CHECK(out[1].size() == 1);
  CHECK(out[0][1].ids == std::vector<data::TokenId>{11, 1, 7});
  CHECK(out[1][0].ids == std::vector<data::TokenId>{21, 0, 7});
  CHECK(out[2][1].ids == std::vector<data::TokenId>{31, 1, 7});
  CHECK(out[0][0].log_probs.empty());
  const auto seen = server.seen();
  REQUIRE(seen.size() == 5);
  CHECK(seen[0].first == "/health/");
  CHECK(Json::parse(seen[3].second)["prompts"] == Json::parse("[[21]]"));
  CHECK(Json::parse(seen[4].second) == Json::parse(R"({"prompts": [[11, 12], [31]], "n": 2, "repetition_penalty": 1.2,
      "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "max_tokens": 9, "logprobs": 0,
      "generation_kwargs": {"stop": "x", "stop_token_ids": [7]}})"));
}

TEST_CASE("texts that end a completion travel, and a server's word for it is taken") {
  rlalgo::support::HttpServer server([](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    return of_itself(path).value_or(std::pair<int, std::string>{
        200, R"({"completion_ids": [[5, 6, 8], [5, 6, 8]], "finish_reasons": ["stop", "length"]})"});
  });
  remote::VllmClient client(config(server.url()));
  const std::vector<inference::Request> requests = {{.prompt = {1, 2}, .count = 2}};
  const inference::SamplingConfig sampling{
      .max_new_tokens = 3, .stop_ids = {7}, .stop_strings = {"END"}, .min_new_tokens = 2};
  const auto out = client.generate(requests, sampling, {})[0];
  CHECK(out[0].finish == data::Finish::stop);  // with the last token that there was room for
  CHECK(out[1].finish == data::Finish::length);
  const auto seen = server.seen();
  CHECK(Json::parse(seen.back().second)["generation_kwargs"] ==
        Json::parse(R"({"stop_token_ids": [7], "stop": ["END"], "min_tokens": 2})"));
}

TEST_CASE("the log-prob of a token is the entry of its id") {
  const auto out = ask(R"({"completion_ids": [[5, 6, 8], [7]],
      "logprobs": [[[-0.5], [-0.1, -2.5], [-0.2, -0.3]], [[-1.0]]],
      "logprob_token_ids": [[[5], [9, 6], [8, 9]], [[7]]]})");
  CHECK(out[0].log_probs == std::vector<float>{-0.5F, -2.5F, -0.2F});
  CHECK(out[0].finish == data::Finish::length);
  CHECK(out[1].log_probs == std::vector<float>{-1.0F});
  CHECK(out[1].finish == data::Finish::stop);
  const auto unknown = ask(R"({"completion_ids": [[5, 6], [7]], "logprobs": [[[-0.5], [null]], [[-1.0]]],
      "logprob_token_ids": [[[5], [6]], [[7]]]})");
  CHECK(unknown[0].log_probs.empty());
  CHECK(unknown[0].finish == data::Finish::stop);
  CHECK(unknown[1].log_probs.size() == 1);
}

TEST_CASE("answers of the wrong shape are refused with what was found") {
  const std::pair<const char*, const char*> rows[] = {
      {"[]", "completion_ids"},
      {"{}", "completion_ids"},
      {R"({"completion_ids": [[5]]})", "found 1 completions, expected 2"},
      {R"({"completion_ids": [[5], 6]})", "a list of token ids"},
      {R"({"completion_ids": [[5], [1.5]]})", "a token id"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]]], "logprob_token_ids": [[[5]]]})", "1 lists in logprobs"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [[-1]]], "logprob_token_ids": [[[5]]]})",
       "1 lists in logprob_token_ids"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], []], "logprob_token_ids": [[[5]], []]})",
       "found 0 logprobs of a completion, expected 1, one per token"},
      {R"({"completion_ids": [[5], []], "logprobs": [[[-1]], null], "logprob_token_ids": [[[5]], []]})",
       "found null as logprobs of a completion, expected a list"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [[-1]]], "logprob_token_ids": [[[5]], []]})",
       "found 0 logprob_token_ids of a completion, expected 1, one per token"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [[-1]]], "logprob_token_ids": [[[5]], [[8]]]})",
       "sampled token 6"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [[-1, -2]]], "logprob_token_ids": [[[5]], [[6]]]})",
       "do not match"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [["x"]]], "logprob_token_ids": [[[5]], [[6]]]})",
       "a log-prob"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [[0.5]]], "logprob_token_ids": [[[5]], [[6]]]})",
       "a log-prob, at most 0"},
      {R"({"completion_ids": [[5], [6]], "logprobs": [[[-1]], [[-1e308]]], "logprob_token_ids": [[[5]], [[6]]]})",
       "a log-prob, at most 0"},
      {R"({"completion_ids": [[5], [5, 5, 5, 6]], "logprobs": null})", "a completion of 4 tokens"},
  };
  for (const auto& [answer, text] : rows) {
    INFO(answer);
    CHECK_THROWS_WITH(ask(answer),
                      Catch::Contains("[rlalgo.remote.10]") && Catch::Contains(text) && Catch::Contains("/generate/"));
  }
  for (const char* answer : {R"({"completion_ids": [[5], [100]]})", R"({"completion_ids": [[5], [-1]]})"})
    CHECK_THROWS_WITH(ask(answer), Catch::Contains("[rlalgo.remote.11]") && Catch::Contains("below 100"));
}

TEST_CASE("a server that is not up is waited for, then named") {
  const std::string url = support::nobody_url();
  remote::VllmConfig settings = config(url);
  settings.start_seconds = 0.2;
  std::vector<std::string> told;
  settings.tell = [&](const std::string& line) { told.push_back(line); };
  remote::VllmClient client(settings);
  const std::vector<inference::Request> requests = {{.prompt = {1}, .count = 1}};
  CHECK_THROWS_WITH(client.generate(requests, {}, {}),
                    Catch::Contains("[rlalgo.http.5]") && Catch::Contains(url + "/health/"));
  CHECK(told.size() == 1);

  int health = 0;
  rlalgo::support::HttpServer late([&](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    if (path == "/health/") return {++health < 2 ? 503 : 200, "{}"};
    if (const auto known = of_itself(path)) return *known;
    return {200, R"({"completion_ids": [[3]]})"};
  });
  settings = config(late.url());
  settings.start_seconds = 30;
  remote::VllmClient patient(settings);
  CHECK(patient.generate(requests, {}, {})[0][0].ids == std::vector<data::TokenId>{3});
  CHECK(patient.generate(requests, {}, {}).size() == 1);
  CHECK(health == 2);
}

TEST_CASE("a generation that drips or never ends stops at its deadline and its limit; a busy server is asked again") {
  const std::vector<inference::Request> requests = {{.prompt = {1}, .count = 1}};
  const std::string ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
  // The first three connections ask for health, routes and version.
  const auto first_answers = [&](support::RawPeer& peer, int connection) {
    (void)peer.receive_header();
    const std::string body = connection == 1 ? trl_routes : "{}";
    if (connection < 3) peer.send(ok + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return connection < 3;
  };
  support::RawServer drips([&](support::RawPeer& peer, int connection) {
    if (first_answers(peer, connection)) return;
    peer.drip(ok + "Content-Length: 100000\r\n\r\n", 20);
  });
  remote::VllmConfig settings = config(drips.url());
  settings.server.call_seconds = 0.3;
  CHECK_THROWS_WITH(remote::VllmClient(settings).generate(requests, {}, {}), Catch::Contains("[rlalgo.http.1]") &&
                                                                                 Catch::Contains("time is up") &&
                                                                                 Catch::Contains("/generate/"));

  support::RawServer endless([&](support::RawPeer& peer, int connection) {
    if (first_answers(peer, connection)) return;
    peer.send(ok + "\r\n");
    while (peer.send(std::string(65536, ' '))) {
    }
  });
  settings = config(endless.url());
  settings.server.body_limit = std::size_t{4} << 20;
  CHECK_THROWS_WITH(remote::VllmClient(settings).generate(requests, {}, {}), Catch::Contains("[rlalgo.http.6]"));

  int generations = 0;
  support::HttpServer busy([&](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    if (const auto known = of_itself(path)) return *known;
    return {++generations < 3 ? 429 : 200, R"({"completion_ids": [[3]]})"};
  });
  std::vector<http::Retry> told;
  settings = config(busy.url());
  settings.server.retries = {
      .retries = 5, .first_wait = 0.01, .tell = [&](const http::Retry& r) { told.push_back(r); }};
  CHECK(remote::VllmClient(settings).generate(requests, {}, {})[0][0].ids == std::vector<data::TokenId>{3});
  REQUIRE(told.size() == 2);
  CHECK(told[0].what == "HTTP 429");
}

namespace {

// A server of OpenAI's protocol; what it was asked is in `body`.
struct OpenAi {
  std::string answer, mode = "raw_logprobs";
  Json body;
  std::vector<std::string> told;
  support::HttpServer server{[this](const std::string& path, const std::string& asked) -> std::pair<int, std::string> {
    if (path == "/health/") return {307, ""};
    if (path == "/openapi.json") return {200, R"({"paths": {"/v1/completions": {}}})"};
    if (path == "/version") return {200, R"({"version": "0.32.0"})"};
    if (path == "/v1/models") return {200, R"({"data": [{"id": "base"}, {"id": "axolotl-lora"}]})"};
    if (path.starts_with("/server_info"))
      return {200, Json{{"vllm_config", {{"model_config", {{"logprobs_mode", mode}}}}}}.dump()};
    body = Json::parse(asked);
    return {200, answer};
  }};

  std::vector<data::Completion> ask(const inference::SamplingConfig& sampling, const std::string& adapter = {}) {
    remote::VllmConfig settings = config(server.url());
    settings.adapter = adapter;
    settings.tell = [this](const std::string& line) { told.push_back(line); };
    remote::VllmClient client(settings);
    const std::vector<inference::Request> requests = {{.prompt = {1, 2}, .count = 2}};
    (void)client.generate(requests, sampling, {});
    return client.generate(requests, sampling, {})[0];
  }
};

}  // namespace

TEST_CASE("stock vLLM is asked in OpenAI's protocol, for its adapter where it has one") {
  OpenAi vllm{.answer = R"({"choices": [
      {"index": 1, "token_ids": [5, 7], "logprobs": {"token_logprobs": [-1, -2]}, "finish_reason": "stop"},
      {"index": 0, "token_ids": [6], "logprobs": {"token_logprobs": [-0.5]}, "finish_reason": "length"}]})"};
  const inference::SamplingConfig neutral{.max_new_tokens = 3, .stop_ids = {7}};
  const auto out = vllm.ask(neutral, "axolotl-lora");
  REQUIRE(out.size() == 2);
  CHECK(out[0].ids == std::vector<data::TokenId>{6});
  CHECK(out[0].finish == data::Finish::length);
  CHECK(out[0].log_probs == std::vector<float>{-0.5F});
  CHECK(out[1].ids == std::vector<data::TokenId>{5, 7});
  CHECK(out[1].finish == data::Finish::stop);
  CHECK(out[1].weights_version == -1);
  CHECK(vllm.body == Json::parse(R"({"model": "axolotl-lora", "prompt": [[1, 2]], "n": 2, "repetition_penalty": 1.0,
      "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 3, "logprobs": 0,
      "return_token_ids": true, "stop_token_ids": [7]})"));
  vllm.ask(neutral, "another");
  CHECK(vllm.body["model"] == "base");
}

TEST_CASE("log-probs of the model are none where another distribution is drawn from") {
  OpenAi vllm{.answer = R"({"choices": [{"index": 0, "token_ids": [6], "logprobs": {"token_logprobs": [-0.5]}},
      {"index": 1, "token_ids": [6], "logprobs": {"token_logprobs": [-0.5]}}]})"};
  const inference::SamplingConfig warm{.temperature = 0.7, .max_new_tokens = 3};
  CHECK(vllm.ask(warm)[0].log_probs.empty());
  REQUIRE(vllm.told.size() == 1);
  CHECK_THAT(vllm.told[0], Catch::Contains("processed_logprobs"));
  vllm.mode = "processed_logprobs";
  CHECK(vllm.ask(warm)[0].log_probs.size() == 1);
  CHECK(vllm.told.size() == 1);
}

TEST_CASE("greedy completions of one prompt are one, and copies") {
  OpenAi vllm{.answer = R"({"choices": [{"index": 0, "token_ids": [6], "logprobs": null}]})"};
  const auto out = vllm.ask({.temperature = 0.0, .max_new_tokens = 3});
  CHECK(vllm.body["n"] == 1);
  REQUIRE(out.size() == 2);
  CHECK(out[1].ids == out[0].ids);
}

TEST_CASE("choices of the wrong shape are refused") {
  for (
      const char* answer :
      {R"({"choices": []})", R"({"choices": [{"index": 0, "token_ids": [1]}, {"index": 0, "token_ids": [1]}]})",
       R"({"choices": [{"index": 0, "token_ids": [1]}, {"index": 2, "token_ids": [1]}]})",
       R"({"choices": [{"token_ids": [1]}, {"index": 1, "token_ids": [1]}]})",
       R"({"choices": [{"index": 0, "token_ids": [1], "logprobs": {"token_logprobs": []}}, {"index": 1, "token_ids": [1]}]})",
       R"({"choices": [5, 6]})"}) {
    INFO(answer);
    OpenAi vllm{.answer = answer};
    CHECK_THROWS_WITH(vllm.ask({.max_new_tokens = 3}),
                      Catch::Contains("[rlalgo.remote.10]") && Catch::Contains("/v1/completions"));
  }
}

TEST_CASE("rlalgo's own server is told what to draw, and says whose weights it drew from") {
  Json body;
  support::HttpServer server([&](const std::string& path, const std::string& asked) -> std::pair<int, std::string> {
    if (path == "/version") return {200, R"({"version": "1", "server": "rlalgo"})"};
    if (const auto known = of_itself(path)) return *known;
    body = Json::parse(asked);
    return {200, R"({"completion_ids": [[5], [6], [7]], "finish_reasons": ["stop", "abort", "stop"],
                     "weights_version_names": ["v12", "v3", "3"]})"};
  });
  remote::VllmClient client(config(server.url()));
  const std::vector<inference::Request> requests = {
      {.prompt = {1}, .first_index = 40}, {.prompt = {2}, .first_index = 8, .first_position = 5}, {.prompt = {3}}};
  const auto out = client.generate(requests, {.max_new_tokens = 3}, {.seed = 18446744073709551615U, .step = 2});
  CHECK(body["draws"] == Json::parse(R"({"seed": 18446744073709551615, "step": 2, "first_indices": [40, 8, 0],
      "first_positions": [0, 5, 0]})"));
  CHECK(out[0][0].weights_version == 12);
  CHECK(out[1][0].weights_version == 3);
  CHECK(out[1][0].finish == data::Finish::aborted);
  CHECK(out[2][0].weights_version == -1);  // the server's own count, not the trainer's
}

TEST_CASE("a server whose list has neither route is named") {
  support::HttpServer server([](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    if (path == "/openapi.json") return {200, R"({"paths": {"/health": {}}})"};
    return {path == "/health/" ? 200 : 404, "{}"};
  });
  remote::VllmClient client(config(server.url()));
  const std::vector<inference::Request> requests = {{.prompt = {1}}};
  CHECK_THROWS_WITH(client.generate(requests, {}, {}),
                    Catch::Contains("[rlalgo.remote.13]") && Catch::Contains("/v1/completions"));
}

TEST_CASE("a server that does not say what it has is asked as TRL's, although it answers GET of that route with 404") {
  support::HttpServer server([](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
    if (path == "/health/") return {200, "{}"};
    if (path == "/generate/" && !body.empty()) return {200, R"({"completion_ids": [[5, 7]]})"};
    return {404, R"({"detail": "Not Found"})"};
  });
  remote::VllmClient client(config(server.url()));
  const std::vector<inference::Request> requests = {{.prompt = {1}}};
  CHECK(client.generate(requests, {}, {})[0][0].ids == std::vector<data::TokenId>{5, 7});
}
