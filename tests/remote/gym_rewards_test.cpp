#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/http/server.hpp>
#include <rlalgo/remote/gym_rewards.hpp>

using namespace rlalgo;
using remote::Gym;
using remote::GymReward;
using remote::GymVerifier;
using support::lacks;
using support::raised_by;
using Json = Gym::Json;

namespace {

// A resources server with a session, in front of it a head.
struct FakeGym {
  std::mutex mutex;
  std::vector<Json> verified;
  std::set<std::string> sessions;
  int seeds = 0;
  bool stateless = false;
  std::function<std::pair<int, Json>(const Json& body, const std::string& text)> judge = [](const Json& body,
                                                                                            const std::string& text) {
    const bool right = body.value("expected_answer", "") == text;
    return std::pair{200, Json{{"reward", right ? 1.0 : 0.0},
                               {"mask_sample", false},
                               {"failure_kind", nullptr},
                               {"reward_components",
                                {{"correct", right ? 1.0 : 0.0}, {"short", 1.0 / static_cast<double>(text.size())}}}}};
  };
  http::Server server{{}, [this](const std::shared_ptr<http::Exchange>& exchange) { answer(exchange); }};

  void answer(const std::shared_ptr<http::Exchange>& exchange) {
    const std::lock_guard lock(mutex);
    const http::Request& request = exchange->request();
    const std::string port = server.url().substr(server.url().rfind(':') + 1);
    if (request.target == "/global_config_dict_yaml")
      return exchange->respond(
          {200,
           {},
           Json(
               R"({"match": {"resources_servers": {"match": {"port": )" + port +
               R"(}}}, "match_agent": {"responses_api_agents": {"simple": {"port": 1, "resources_server": {"name": "match"}}}}})")
               .dump()});
    if (request.target == "/seed_session") {
      if (stateless) return exchange->respond({404, {}, "{}"});
      const std::string id = "s" + std::to_string(++seeds);
      sessions.insert("session=" + id);
      return exchange->respond({200, {{"Set-Cookie", "session=" + id + "; Path=/"}}, "{}"});
    }
    if (request.target != "/verify") return exchange->respond({200, {}, "{}"});
    const std::string* cookie = http::find_header(request.headers, "Cookie");
    if (!stateless && (cookie == nullptr || sessions.erase(*cookie) == 0))
      return exchange->respond({500, {}, "\"no session\""});
    const Json body = Json::parse(request.body);
    verified.push_back(body);
    std::string text;
    for (const Json& item : body["response"]["output"])
      if (item["type"] == "message") text = item["content"][0]["text"];
    const auto [status, reply] = judge(body, text);
    exchange->respond({status, {}, reply.dump()});
  }

  std::shared_ptr<Gym> gym() {
    auto out = std::make_shared<Gym>(
        remote::GymConfig{.head = server.url(), .start_seconds = 5, .retries = 0, .yaml = [](const std::string& text) {
                            return Json::parse(text);
                          }});
    out->discover({});
    return out;
  }
};

Json row(const std::string& answer, const Json& more = Json::object()) {
  Json out = {{"responses_create_params", {{"input", Json::array({{{"role", "user"}, {"content", "Q"}}})}}},
              {"expected_answer", answer},
              {"agent_ref", {{"type", "responses_api_agents"}, {"name", "match_agent"}}}};
  out.update(more);
  return out;
}

// A call over rows and texts.
struct Called {
  std::vector<Json> columns, completions;
  std::vector<std::string> texts;
  Json prompt = "Q";
  std::vector<const Json*> prompts;
  std::vector<std::int32_t> one = {1};
  std::vector<std::span<const std::int32_t>> ids;
  reward::RewardLog log;

  Called(std::vector<Json> rows, std::vector<std::string> said) : columns(std::move(rows)), texts(std::move(said)) {
    for (const std::string& text : texts) {
      completions.emplace_back(text);
      prompts.push_back(&prompt);
      ids.emplace_back(one);
    }
  }
  reward::RewardCall call(std::int64_t step = 3) {
    return {.prompts = prompts,
            .completions = completions,
            .texts = texts,
            .completion_ids = ids,
            .columns = columns,
            .step = step,
            .log = &log};
  }
};

double metric(const reward::RewardLog& log, const std::string& name) {
  for (const auto& [key, value] : log.own_metrics)
    if (key == name) return value;
  return -1;
}

}  // namespace

TEST_CASE("a row's server is the one it names, the dataset's, or its agent's") {
  FakeGym fake;
  const auto gym = fake.gym();
  const auto of = [&](const Json& r) { return remote::gym_resources_of(r, gym->directory()); };
  CHECK(of({{"agent_ref", {{"type", "resources_servers"}, {"name", "a"}}},
            {"resources_server_ref", {{"name", "b"}}}}) == "a");
  CHECK(of(row("4", {{"resources_server_ref", {{"name", "b"}}}})) == "b");
  CHECK(of(row("4")) == "match");
  CHECK(lacks(raised_by([&] {
                of({{"agent_ref", {{"type", "responses_api_agents"}, {"name", "chess"}}}});
              }),
              {"remote.71", "agent", "chess", "match_agent"}) == "");
  CHECK(lacks(raised_by([&] { of({{"question", "x"}}); }), {"remote.71", "server_name", "question"}) == "");
}

TEST_CASE("a response is what the model said, with its calls where the row has tools") {
  const Json plain = remote::gym_response("<answer>4</answer>", false, "m");
  CHECK(plain["output"][0]["content"][0]["text"] == "<answer>4</answer>");
  CHECK(plain["model"] == "m");
  for (const char* key : {"id", "created_at", "object", "parallel_tool_calls", "tool_choice", "tools"})
    CHECK(plain.contains(key));
  const std::string call =
      "Let me see.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
  CHECK(remote::gym_response(call, false, "m")["output"].size() == 1);
  const Json called = remote::gym_response(call, true, "m")["output"];
  REQUIRE(called.size() == 2);
  CHECK(called[0]["content"][0]["text"] == "Let me see.");
  CHECK(called[1]["name"] == "look");
  CHECK(called[1]["arguments"] == "{\"city\":\"Oslo\"}");
}

TEST_CASE("completions are judged in sessions of their own; rows travel untouched; components are rewards") {
  FakeGym fake;
  auto verifier = std::make_shared<GymVerifier>(fake.gym(), remote::GymVerifyConfig{.seconds = 5, .model = "m"});
  GymReward reward(verifier, ""), correct(verifier, "correct"), brief(verifier, "short"), absent(verifier, "absent");
  CHECK(reward.name() == "nemo_gym");
  CHECK(brief.name() == "nemo_gym.short");
  Called one({row("4"), row("five", {{"metadata", nullptr}, {"resources_server_ref", {{"name", "match"}}}}), row("6")},
             {"4", "five", "7"});
  CHECK(reward(one.call()) == std::vector<double>{1, 1, 0});
  CHECK(fake.verified.size() == 3);
  CHECK(fake.seeds == 3);
  for (const Json& body : fake.verified) {
    CHECK_FALSE(body.contains("resources_server_ref"));
    CHECK(body["responses_create_params"] == row("")["responses_create_params"]);
    CHECK(body.contains("metadata") == (body["expected_answer"] == "five"));
  }
  // the other functions share the answers
  CHECK(correct(one.call()) == std::vector<double>{1, 1, 0});
  CHECK(brief(one.call()) == std::vector<double>{1, 0.25, 1});
  CHECK(fake.verified.size() == 3);
  CHECK(lacks(raised_by([&] { absent(one.call()); }), {"remote.77", "absent", "correct, short"}) == "");
  // the same texts again are judged again
  CHECK(reward(one.call()) == std::vector<double>{1, 1, 0});
  CHECK(fake.verified.size() == 6);
  CHECK(metric(one.log, "rollout/failed") == 0);
  CHECK(one.log.failed.empty());
}

TEST_CASE("a server without sessions is asked for one once") {
  FakeGym fake;
  fake.stateless = true;
  auto verifier = std::make_shared<GymVerifier>(fake.gym(), remote::GymVerifyConfig{.seconds = 5, .at_once = 1});
  GymReward reward(verifier, "");
  Called one({row("4"), row("5")}, {"4", "5"});
  CHECK(reward(one.call()) == std::vector<double>{1, 1});
}

TEST_CASE("failures have no reward, are counted by class, and leave their group") {
  FakeGym fake;
  fake.judge = [](const Json&, const std::string& text) -> std::pair<int, Json> {
    if (text == "masked") return {200, {{"reward", 0.0}, {"mask_sample", true}, {"failure_reason", "no judge"}}};
    if (text == "broken") return {500, "Hit an exception"};
    if (text == "silent") return {200, {{"score", 1.0}}};
    if (text == "endless") return {200, {{"reward", 1e300}}};
    return {200, {{"reward", 1.0}}};
  };
  auto verifier = std::make_shared<GymVerifier>(fake.gym(), remote::GymVerifyConfig{.seconds = 5});
  GymReward reward(verifier, "");
  Called one({row("1"), row("2"), row("3"), row("4"), row("5"), row("6")},
             {"masked", "4", "broken", "silent", "endless", "4"});
  const std::vector<double> values = reward(one.call());
  for (const std::size_t i : {0, 2, 3, 4}) CHECK(std::isnan(values[i]));
  CHECK(values[1] == 1);
  CHECK(one.log.failed == std::vector<std::size_t>{0, 2, 3, 4});
  CHECK(metric(one.log, "rollout/failed") == Approx(4.0 / 6));
  CHECK(metric(one.log, "rollout/failed/judge") == Approx(1.0 / 6));
  CHECK(metric(one.log, "rollout/failed/status") == Approx(1.0 / 6));
  CHECK(metric(one.log, "rollout/failed/malformed") == Approx(2.0 / 6));
  REQUIRE(one.log.warnings.size() == 1);
  CHECK(lacks(one.log.warnings[0], {"4 of 6", "1 judge, 2 malformed, 1 status", "no judge"}) == "");
  // classes seen once are reported on
  Called good({row("1")}, {"4"});
  reward(good.call());
  CHECK(metric(good.log, "rollout/failed/judge") == 0);
}

TEST_CASE("a row that is refused, a server that judges no single turns, a batch without a judgement end the run") {
  FakeGym fake;
  auto verifier = [&](bool ends = true) {
    return std::make_shared<GymVerifier>(fake.gym(),
                                         remote::GymVerifyConfig{.seconds = 5, .refusals_end_the_run = ends});
  };
  fake.judge = [](const Json&, const std::string& text) -> std::pair<int, Json> {
    if (text == "good") return {200, {{"reward", 1.0}}};
    return {422, {{"detail", {{{"type", "missing"}, {"loc", {"body", "expected_answer"}}}}}}};
  };
  Called mixed({row("1"), row("2")}, {"good", "bad"});
  CHECK(lacks(raised_by([&] { GymReward(verifier(), "")(mixed.call()); }),
              {"remote.74", "422", "expected_answer", "the row"}) == "");
  CHECK(std::isnan(GymReward(verifier(false), "")(mixed.call())[1]));
  fake.judge = [](const Json&, const std::string&) -> std::pair<int, Json> { return {404, Json::object()}; };
  CHECK(lacks(raised_by([&] { GymReward(verifier(), "")(mixed.call()); }),
              {"remote.75", "match", "nemo_gym_multi_turn"}) == "");
  fake.judge = [](const Json&, const std::string&) -> std::pair<int, Json> { return {500, "no"}; };
  CHECK(lacks(raised_by([&] { GymReward(verifier(), "")(mixed.call()); }), {"remote.76", "2 failures", "HTTP 500"}) ==
        "");
}
