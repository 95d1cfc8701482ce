#include <rlalgo/remote/open_ai_client.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/http_server.hpp>

using namespace rlalgo;
using Json = remote::OpenAiClient::Json;

namespace {

// A server of /v1/completions, and what it was asked.
struct Server {
  std::function<Json(const Json& body)> answer;
  bool up = true;
  std::vector<Json> asked = {};
  std::vector<std::string> told = {};
  support::HttpServer server =
      support::HttpServer([this](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
        if (path == "/v1/models") return {up ? 200 : 503, R"({"data": [{"id": "base"}, {"id": "tuned"}]})"};
        if (path != "/v1/completions") return {404, "{}"};
        asked.push_back(Json::parse(body));
        return {200, answer(asked.back()).dump()};
      });

  explicit Server(std::function<Json(const Json& body)> answers) : answer(std::move(answers)) {}

  remote::OpenAiConfig config() {
    return {.server = {.base_url = server.url(), .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = 0}},
            .tell = [this](const std::string& line) { told.push_back(line); },
            .vocab_size = 100};
  }
  std::vector<std::vector<data::Completion>> ask(remote::OpenAiConfig config, const inference::SamplingConfig& sampling,
                                                 const std::vector<inference::Request>& requests) {
    remote::OpenAiClient client(std::move(config));
    return client.generate(requests, sampling, {});
  }
  std::vector<std::vector<data::Completion>> ask() {
    return ask(config(), {.max_new_tokens = 3, .stop_ids = {7}}, {{.prompt = {1, 2}, .count = 2}});
  }
};

// Two completions of one prompt, each of the ids 5 and 7.
Json two(const Json& fields, const Json& usage = nullptr) {
  Json choices = Json::array();
  for (int i = 0; i < 2; ++i) {
    Json choice = {{"index", i}, {"text", "ab"}, {"finish_reason", "stop"}};
    choice.update(fields);
    choices.push_back(choice);
  }
  return {{"choices", choices}, {"usage", usage}};
}

const Json drawn = {{"token_ids", {5, 7}}, {"logprobs", {{"token_logprobs", {-0.5, -0.25}}}}};
const Json words = {{"logprobs", {{"tokens", {"token_id:5", "token_id:7"}}, {"token_logprobs", {-0.5, -0.25}}}}};

}  // namespace

TEST_CASE("token ids and log-probs of a server that has them as fields") {
  Server server([](const Json&) { return two(drawn, {{"prompt_tokens", 2}}); });
  const auto out = server.ask();
  REQUIRE(out.at(0).size() == 2);
  CHECK(out[0][1].ids == std::vector<data::TokenId>{5, 7});
  CHECK(out[0][1].log_probs == std::vector<float>{-0.5F, -0.25F});
  CHECK(out[0][1].finish == data::Finish::stop);
  REQUIRE(server.asked.size() == 1);
  CHECK(server.asked[0]["model"] == "base");
  CHECK(server.asked[0]["prompt"] == Json::parse("[[1, 2]]"));
  CHECK(server.asked[0]["return_token_ids"] == true);

  auto named = server.config();
  named.model = "other";
  named.generation_kwargs = {{"top_p", 0.5}};
  (void)server.ask(named, {.max_new_tokens = 3}, {{.prompt = {1, 2}, .count = 2}});
  CHECK((server.asked[1]["model"] == "other" && server.asked[1]["top_p"] == 0.5));
  auto tuned = server.config();
  tuned.adapter = "tuned";
  (void)server.ask(tuned, {.max_new_tokens = 3}, {{.prompt = {1, 2}, .count = 2}});
  CHECK(server.asked[2]["model"] == "tuned");
}

TEST_CASE("token ids of a server that has them as words: it is asked in the other form, once") {
  Server server([](const Json& body) {
    const bool ids = body.contains("return_tokens_as_token_ids");
    return two(ids ? words : Json{{"logprobs", {{"tokens", {"a", "b"}}, {"token_logprobs", {-0.5, -0.25}}}}});
  });
  remote::OpenAiClient client(server.config());
  const std::vector<inference::Request> requests = {{.prompt = {1, 2}, .count = 2}};
  for (int round = 0; round < 2; ++round) {
    const auto out = client.generate(requests, {.max_new_tokens = 3, .stop_ids = {7}}, {});
    CHECK(out.at(0).at(0).ids == std::vector<data::TokenId>{5, 7});
    CHECK(out[0][0].log_probs == std::vector<float>{-0.5F, -0.25F});
  }
  REQUIRE(server.asked.size() == 3);
  CHECK_FALSE(server.asked[2].contains("return_token_ids"));
}

TEST_CASE("prompts that want other counts and lengths go in calls of their own") {
  Server server([](const Json& body) {
    Json out = {{"choices", Json::array()}};
    for (const Json& prompt : body["prompt"])
      for (int j = 0; j < body["n"]; ++j)
        out["choices"].push_back({{"index", out["choices"].size()},
                                  {"token_ids", {prompt[0], 7}},
                                  {"logprobs", {{"token_logprobs", {-0.5, -0.25}}}}});
    return out;
  });
  const auto out =
      server.ask(server.config(), {.max_new_tokens = 9, .stop_ids = {7}},
                 {{.prompt = {11}, .count = 2}, {.prompt = {21}, .max_new_tokens = 4}, {.prompt = {31}, .count = 2}});
  REQUIRE(out.size() == 3);
  CHECK((out[0].size() == 2 && out[1].size() == 1 && out[2].size() == 2));
  CHECK((out[0][1].ids[0] == 11 && out[1][0].ids[0] == 21 && out[2][1].ids[0] == 31));
  REQUIRE(server.asked.size() == 2);
  CHECK((server.asked[0]["max_tokens"] == 4 && server.asked[1]["max_tokens"] == 9));
}

TEST_CASE("log-probs that are not of what was drawn are left out, and told of once") {
  Server server([](const Json&) { return two(drawn); });
  remote::OpenAiClient client(server.config());
  const std::vector<inference::Request> requests = {{.prompt = {1, 2}, .count = 2}};
  for (int round = 0; round < 2; ++round)
    CHECK(client.generate(requests, {.temperature = 0.5, .max_new_tokens = 3}, {}).at(0).at(0).log_probs.empty());
  REQUIRE(server.told.size() == 1);
  CHECK_THAT(server.told[0], Catch::Contains("processed_logprobs"));
}

TEST_CASE("a server that does not give what is trained on is refused, with what it gives") {
  const auto refused = [](const Json& answer) {
    Server server([&](const Json&) { return answer; });
    try {
      (void)server.ask();
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto names = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.starts_with("[rlalgo.remote.85]"));
    CHECK(text.find(part) != std::string::npos);
  };
  names(refused(two(Json::object())), "without logprobs.tokens");
  names(refused(two({{"logprobs", {{"tokens", {"a", "b"}}, {"token_logprobs", {-0.5, -0.25}}}}})), "the word \"a\"");
  names(refused(two({{"logprobs", {{"tokens", {"token_id:5", "token_id:x"}}}}})), "token_id:x");
  names(refused(two({{"token_ids", {5, 7}}})), "no log-probs");
  names(refused(two({{"token_ids", {5, 7}}, {"logprobs", nullptr}})), "no log-probs");
  names(refused(two(drawn, {{"prompt_tokens", 9}})), "another prompt");
  Json half = two(drawn);
  half["choices"][1].erase("token_ids");
  names(refused(half), "a choice has no token ids");
  for (const char* wrong : {R"({"choices": []})", R"({"choices": [5, 6]})", "{}", "[]"}) {
    INFO(wrong);
    CHECK(refused(Json::parse(wrong)).starts_with("[rlalgo.remote.10]"));
  }
  CHECK(refused(two({{"token_ids", {5, 100}}})).starts_with("[rlalgo.remote.11]"));
  CHECK(refused(two(drawn, {{"prompt_tokens", 4}})) == "nothing");  // counted for each choice
  // without log-probs where they are not asked for
  Server server([](const Json&) { return two({{"token_ids", {5, 7}}}); });
  auto config = server.config();
  config.require_log_probs = false;
  const auto out = server.ask(config, {.max_new_tokens = 3}, {{.prompt = {1, 2}, .count = 2}});
  CHECK((out.at(0).at(0).ids.size() == 2 && out[0][0].log_probs.empty()));
}

TEST_CASE("a server that is not up is waited for where that is asked for") {
  Server server([](const Json&) { return two(drawn); });
  server.up = false;
  auto config = server.config();
  config.start_seconds = 1.0;
  CHECK_THROWS_WITH(server.ask(config, {.max_new_tokens = 3}, {{.prompt = {1, 2}, .count = 2}}),
                    Catch::Contains("[rlalgo.http.5]"));
}
