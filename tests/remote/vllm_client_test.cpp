#include <rlalgo/remote/vllm_client.hpp>

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

// What the client makes of one answer to two completions of one prompt.
std::vector<data::Completion> ask(const std::string& answer, remote::VllmConfig (*make)(const std::string&) = config) {
  rlalgo::support::HttpServer server([&](const std::string& path, const std::string&) {
    return std::pair{200, path == "/health/" ? "{}" : answer};
  });
  remote::VllmClient client(make(server.url()));
  const std::vector<inference::Request> requests = {{.prompt = {1, 2}, .count = 2}};
  return client.generate(requests, {.max_new_tokens = 3, .stop_ids = {7}}, {})[0];
}

}  // namespace

TEST_CASE("a request carries the sampling parameters, the answer goes back to its prompts") {
  rlalgo::support::HttpServer server(
      [](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
        if (path == "/health/") return {200, R"({"status": "ok"})"};
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
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].first == "/health/");
  CHECK(Json::parse(seen[1].second)["prompts"] == Json::parse("[[21]]"));
  CHECK(Json::parse(seen[2].second) == Json::parse(R"({"prompts": [[11, 12], [31]], "n": 2, "repetition_penalty": 1.2,
      "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "max_tokens": 9, "logprobs": 0,
      "generation_kwargs": {"stop": "x", "stop_token_ids": [7]}})"));
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
  support::RawServer drips([&](support::RawPeer& peer, int connection) {
    (void)peer.receive_header();
    if (connection == 0) return (void)peer.send(ok + "Content-Length: 2\r\n\r\n{}");
    peer.drip(ok + "Content-Length: 100000\r\n\r\n", 20);
  });
  remote::VllmConfig settings = config(drips.url());
  settings.server.call_seconds = 0.3;
  CHECK_THROWS_WITH(remote::VllmClient(settings).generate(requests, {}, {}), Catch::Contains("[rlalgo.http.1]") &&
                                                                                 Catch::Contains("time is up") &&
                                                                                 Catch::Contains("/generate/"));

  support::RawServer endless([&](support::RawPeer& peer, int connection) {
    (void)peer.receive_header();
    if (connection == 0) return (void)peer.send(ok + "Content-Length: 2\r\n\r\n{}");
    peer.send(ok + "\r\n");
    while (peer.send(std::string(65536, ' '))) {
    }
  });
  settings = config(endless.url());
  settings.server.body_limit = std::size_t{4} << 20;
  CHECK_THROWS_WITH(remote::VllmClient(settings).generate(requests, {}, {}), Catch::Contains("[rlalgo.http.6]"));

  int generations = 0;
  support::HttpServer busy([&](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    if (path == "/health/") return {200, "{}"};
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
