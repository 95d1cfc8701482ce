#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/scratch.hpp>

#include <rlalgo/remote/gym_agents.hpp>

using namespace rlalgo;
using remote::Gym;
using remote::GymAgents;
using remote::GymAgentsConfig;
using remote::GymDirectory;
using support::HttpServer;
using support::lacks;
using support::raised_by;
using Ids = std::vector<data::TokenId>;
using Json = Gym::Json;

namespace {

const GymAgentsConfig config{.seconds = 5, .vocab_size = 100, .max_positions = 40};
const Ids stop_ids = {2};

Json drawn(Json item, const Ids& shown, const Ids& ids) {
  item["prompt_token_ids"] = shown;
  item["generation_token_ids"] = ids;
  item["generation_log_probs"] = std::vector<float>(ids.size(), -0.25f);
  return item;
}
const Json call = {
    {"type", "function_call"}, {"call_id", "c"}, {"name", "look"}, {"arguments", "{\"city\": \"Oslo\"}"}};
const Json result = {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "cold"}};
const Json words = {
    {"type", "message"}, {"role", "assistant"}, {"content", {{{"type", "output_text"}, {"text", "It is cold."}}}}};

// Two messages of the model with a tool's result between them.
Json played() {
  return {{"reward", 1.0},
          {"mask_sample", false},
          {"failure_kind", nullptr},
          {"reward_components", {{"brief", 0.5}}},
          {"response",
           {{"output", Json::array({drawn(call, {1, 5, 6}, {50, 51}), result,
                                    drawn(words, {1, 5, 6, 50, 51, 60, 61}, {70, 71, 2})})}}}};
}
std::string failure_of(const Json& reply) { return remote::gym_episode(reply, config, stop_ids).interaction->failure; }

Json server(const std::string& inner, int port, const std::string& uses) {
  return {{"responses_api_agents", {{inner, {{"port", port}, {"resources_server", {{"name", uses}}}}}}}};
}

}  // namespace

TEST_CASE(
    "an episode whose history is kept is one row: the model's tokens as they were drawn, the environment's between "
    "them masked") {
  const data::Completion one = remote::gym_episode(played(), config, stop_ids);
  CHECK(one.prompt_ids == Ids{1, 5, 6});
  CHECK(one.ids == Ids{50, 51, 60, 61, 70, 71, 2});
  CHECK(one.loss_mask == std::vector<std::uint8_t>{1, 1, 0, 0, 1, 1, 1});
  CHECK(one.log_probs == std::vector<float>{-0.25f, -0.25f, 0, 0, -0.25f, -0.25f, -0.25f});
  CHECK(one.finish == data::Finish::stop);
  CHECK(one.further.empty());
  const data::Interaction& episode = *one.interaction;
  CHECK(episode.failure.empty());
  CHECK(episode.reward == 1.0);
  CHECK(episode.turns == 2);
  CHECK(episode.tool_calls == 1);
  CHECK(episode.last_text == "It is cold.");
  REQUIRE(episode.messages.size() == 3);
  CHECK(episode.messages[0]["tool_calls"][0]["function"]["arguments"] == Json{{"city", "Oslo"}});
  CHECK(episode.messages[1] == Json{{"role", "tool"}, {"content", "cold"}});
  CHECK(episode.columns == Json{{"num_turns", 2}, {"nemo_gym.brief", 0.5}});
}

TEST_CASE("only the last item of a model call has its tokens; user messages between turns have none") {
  Json reply = played();
  Json& output = reply["response"]["output"];
  output[2]["prompt_token_ids"] = Ids{1, 5, 6, 50, 51};
  output.insert(output.begin(), Json{{"type", "reasoning"}, {"summary", Json::array()}});
  output.insert(output.begin() + 2,
                Json{{"type", "message"}, {"role", "user"}, {"content", "Go on."}, {"phase", nullptr}});
  const data::Completion one = remote::gym_episode(reply, config, stop_ids);
  CHECK(one.interaction->failure.empty());
  CHECK(one.ids == Ids{50, 51, 70, 71, 2});
  CHECK(one.interaction->messages[1] == Json{{"role", "user"}, {"content", "Go on."}});
}

TEST_CASE("a call whose history was edited begins a further row of the episode, with what it was shown as the prompt") {
  const Ids edits[] = {{1, 5, 6, 52, 51, 60, 61}, {1, 5}, {1, 5, 6, 50}, {2, 5, 6, 50, 51, 60, 61}};
  for (const Ids& shown : edits) {
    Json reply = played();
    Json& output = reply["response"]["output"];
    output[2]["prompt_token_ids"] = shown;
    output[2]["generation_token_ids"] = Ids{70, 71};
    output[2]["generation_log_probs"] = {-0.5, -0.75};
    Ids after = shown;  // the third call goes on with the second
    after.insert(after.end(), {70, 71, 80});
    output.push_back(result);
    output.push_back(drawn(words, after, {90, 2}));
    const data::Completion one = remote::gym_episode(reply, config, stop_ids);
    CHECK(one.interaction->failure.empty());
    CHECK(one.interaction->turns == 3);
    CHECK(one.interaction->reward == 1.0);
    CHECK(one.prompt_ids == Ids{1, 5, 6});
    CHECK(one.ids == Ids{50, 51});
    CHECK(one.loss_mask == std::vector<std::uint8_t>{1, 1});
    CHECK(one.finish == data::Finish::length);
    REQUIRE(one.further.size() == 1);
    const data::DrawnRow& second = one.further[0];
    CHECK(second.prompt_ids == shown);
    CHECK(second.ids == Ids{70, 71, 80, 90, 2});
    CHECK(second.loss_mask == std::vector<std::uint8_t>{1, 1, 0, 1, 1});
    CHECK(second.log_probs == std::vector<float>{-0.5f, -0.75f, 0, -0.25f, -0.25f});
    CHECK(second.finish == data::Finish::stop);
  }
  // a failure in any row is the episode's
  Json reply = played();
  reply["response"]["output"][2]["prompt_token_ids"] = Ids(40, 9);
  const data::Completion failed = remote::gym_episode(reply, config, stop_ids);
  CHECK(failed.interaction->failure == "too_long");
  CHECK(failed.further.empty());
  CHECK(failed.ids == Ids{2});
}

TEST_CASE("null fields, and fields of another type than usual, do no harm") {
  Json reply = played();
  Json& output = reply["response"]["output"];
  for (Json& item : output)
    for (const char* key : {"id", "status", "phase", "created_at"}) item[key] = nullptr;
  output[0]["arguments"] = nullptr;
  output[0]["name"] = 3;
  output[2]["role"] = nullptr;
  output.push_back(Json{{"type", nullptr}, {"role", "assistant"}, {"content", nullptr}});
  const data::Completion one = remote::gym_episode(reply, config, stop_ids);
  CHECK(one.interaction->failure.empty());
  CHECK(one.ids == Ids{50, 51, 60, 61, 70, 71, 2});
  CHECK(one.interaction->messages[0]["tool_calls"][0]["function"] == Json{{"name", ""}, {"arguments", Json::object()}});
  CHECK(one.interaction->last_text == "It is cold.");
}

TEST_CASE("what is no row of ours has failed, in a way that is counted, and carries no loss") {
  Json reply = played();
  reply["mask_sample"] = true;
  CHECK(failure_of(reply) == "judge");
  CHECK(failure_of({{"response", {{"output", Json::array()}}}, {"reward", 0.0}, {"error", "HTTP 500"}}) == "status");
  reply = played();
  reply.erase("reward");
  CHECK(failure_of(reply) == "malformed");
  reply = played();
  reply["response"]["output"] = nullptr;
  CHECK(failure_of(reply) == "malformed");
  reply = played();
  for (const char* key : {"prompt_token_ids", "generation_token_ids", "generation_log_probs"})
    for (Json& item : reply["response"]["output"]) item.erase(key);
  CHECK(failure_of(reply) == "no_token_ids");
  reply["response"]["output"] = Json::array();
  CHECK(failure_of(reply) == "empty");
  reply = played();
  reply["response"]["output"][0]["generation_log_probs"] = {-0.25};
  CHECK(failure_of(reply) == "no_token_ids");
  reply = played();
  reply["response"]["output"][0]["generation_log_probs"] =
      std::vector<float>(reply["response"]["output"][0]["generation_token_ids"].size(), 0.5f);
  CHECK(failure_of(reply) == "malformed");
  reply = played();
  reply["response"]["output"][2]["generation_token_ids"][0] = 100;
  CHECK(failure_of(reply) == "foreign_ids");
  reply = played();
  reply["response"]["output"][2]["prompt_token_ids"] = [] {
    Ids ids = {1, 5, 6, 50, 51};
    ids.resize(40, 9);
    return ids;
  }();
  CHECK(failure_of(reply) == "too_long");
  const data::Completion failed = remote::gym_episode(reply, config, stop_ids);
  CHECK(failed.ids == Ids{2});
  CHECK(failed.loss_mask == std::vector<std::uint8_t>{0});
}

TEST_CASE("a row's agent is the one it names, the one that uses its server, or the only one") {
  const GymDirectory two({{"a", server("simple_agent", 1, "match")}, {"b", server("simple_agent", 2, "game")}}, "h");
  const auto of = [&](const Json& row) { return remote::gym_agent_of(row, two); };
  CHECK(of({{"agent_ref", {{"type", "responses_api_agents"}, {"name", "x"}}}}) == "x");
  CHECK(of({{"resources_server_ref", {{"name", "game"}}}}) == "b");
  CHECK(of({{"resources_server_ref", {{"name", "a"}}}}) == "a");
  CHECK(lacks(raised_by([&] { of({{"question", "q"}}); }), {"remote.84", "one of a, b", "agent_ref"}) == "");
  CHECK(lacks(raised_by([&] {
                of({{"resources_server_ref", {{"name", "chess"}}}});
              }),
              {"remote.84", "0 agents use chess"}) == "");
  const GymDirectory one({{"a", server("simple_agent", 1, "match")}}, "h");
  CHECK(remote::gym_agent_of({{"question", "q"}}, one) == "a");
}

TEST_CASE("agents are asked with the row and our sampling; failures are counted, unless all fail") {
  std::atomic<int> runs = 0;
  std::string mode = "mixed";
  std::string url;
  HttpServer server([&](const std::string& path, const std::string& body) -> std::pair<int, std::string> {
    const std::string port = url.substr(url.rfind(':') + 1);
    if (path == "/global_config_dict_yaml")
      return {200, Json(R"({"agent": {"responses_api_agents": {"simple_agent": {"port": )" + port + "}}}}").dump()};
    if (path != "/run") return {404, "{}"};
    const Json row = Json::parse(body);
    CHECK(row["responses_create_params"]["temperature"] == 0.5);
    CHECK(row["responses_create_params"]["max_output_tokens"] == (row["answer"] == "own" ? 7 : 9));
    CHECK_FALSE(row.contains("resources_server_ref"));
    const int run = runs++;
    if (mode == "broken" || run % 2 == 1) return {500, "\"Hit an exception in SimpleAgent\""};
    return {200, played().dump()};
  });
  url = server.url();
  auto gym = std::make_shared<Gym>(
      remote::GymConfig{.head = url, .start_seconds = 5, .retries = 0, .yaml = [](const std::string& text) {
                          return Json::parse(text);
                        }});
  gym->discover({});
  GymAgentsConfig settings = config;
  settings.at_once = 1;
  std::string told;
  settings.tell = [&](const std::string& line) { told = line; };
  GymAgents agents(gym, settings);
  const Json params = {{"input", "Q"}};
  const data::TokenizedPrompt plain{
      .row = 0,
      .ids = {1},
      .prompt = "Q",
      .columns = {{"responses_create_params", params}, {"answer", "4"}, {"resources_server_ref", {{"name", "agent"}}}}};
  const data::TokenizedPrompt own{
      .row = 1,
      .ids = {1},
      .prompt = "Q",
      .columns = {{"responses_create_params", {{"input", "Q"}, {"max_output_tokens", 7}}}, {"answer", "own"}}};
  const std::vector<inference::Request> requests = {{.prompt = {1}, .count = 2, .source = &plain},
                                                    {.prompt = {1}, .count = 2, .source = &own}};
  const inference::SamplingConfig sampling{.temperature = 0.5, .max_new_tokens = 9, .stop_ids = stop_ids};
  const auto groups = agents.generate(requests, sampling, {});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0][0].interaction->failure.empty());
  CHECK(groups[0][1].interaction->failure == "status");
  CHECK(groups[0][1].log_probs.size() == groups[0][1].ids.size());
  CHECK(groups[1][0].ids.size() == 7);
  CHECK(lacks(told, {"2 of 4 episodes failed", "Hit an exception"}) == "");
  mode = "broken";
  CHECK(lacks(raised_by([&] { agents.generate(requests, sampling, {}); }), {"remote.83", "4 failures", "HTTP 500"}) ==
        "");
}
