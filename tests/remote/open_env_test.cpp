#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/open_env.hpp>

using namespace rlalgo;
using environment::Said;
using environment::Start;
using environment::Turn;
using remote::OpenEnv;
using remote::OpenEnvConfig;
using support::lacks;
using support::raised_by;
using Json = OpenEnv::Json;

namespace {

// tests/cli/clients/fake_open_env.py, for as long as this lives.
class Fake {
 public:
  explicit Fake(const std::string& arguments) {
    const std::string program =
        (std::filesystem::path(support::test_dir) / "cli" / "clients" / "fake_open_env.py").string();
    port_file_ = folder_.path() / "port";
    process_ =
        ::popen(("exec python3 '" + program + "' " + arguments + " > '" + port_file_.string() + "'").c_str(), "w");
    const os::Stopwatch watch;
    while (watch.seconds() < 20) {
      if (FILE* file = std::fopen(port_file_.c_str(), "r")) {
        const bool found = std::fscanf(file, "%d", &port_) == 1;
        std::fclose(file);
        if (found) break;
      }
    }
    REQUIRE(port_ > 0);
  }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
  ~Fake() { ::pclose(process_); }
  [[nodiscard]] std::string url() const { return "ws://127.0.0.1:" + std::to_string(port_); }

 private:
  support::ScratchDirectory folder_;
  std::filesystem::path port_file_;
  FILE* process_ = nullptr;
  int port_ = 0;
};

Start start(std::uint64_t seed) { return {.row = {{"prompt", "x"}, {"level", 2}}, .seed = 1, .group_seed = seed}; }
Said said(std::size_t episode, const std::string& text) {
  return {episode, {{"role", "assistant"}, {"content", text}}};
}
Said called(std::size_t episode, const std::string& name, const Json& arguments) {
  const Json call = {{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  return {episode, {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}}};
}

// Guesses 1, 2, … until the game is over; the reward.
double play(OpenEnv& environment, std::size_t episode) {
  double reward = 0;
  for (int guess = 1; guess <= 9; ++guess) {
    const Turn turn = environment.step(std::vector{said(episode, std::to_string(guess))})[0];
    reward += turn.reward;
    if (turn.done) return reward;
  }
  return -1;
}

}  // namespace

TEST_CASE("what the model says becomes an action") {
  const Json one = {{"properties", {{"metadata", {{"type", "object"}}}, {"number", {{"type", "integer"}}}}}};
  const auto action = [](const std::string& text, const Json& schema) {
    return OpenEnv::action_of(text, schema).first;
  };
  CHECK(action("I say 3, no, 12.", one) == Json{{"number", 12}});
  CHECK(action("so {\"number\": 4}", one) == Json{{"number", 4}});
  CHECK(action("none", one).is_null());
  CHECK(action("4.5", one).is_null());
  const Json loose = {{"properties", {{"number", {{"type", {"integer", "null"}}}}}}};
  CHECK(lacks(OpenEnv::action_of("none", loose).second, {"JSON object", "number"}) == "");
  CHECK(OpenEnv::action_of("{\"number\": 2}", Json("no schema")).first == Json{{"number", 2}});
  CHECK(lacks(OpenEnv::action_of("none", one).second, {"JSON object", "number (integer)"}) == "");
  const Json text = {{"properties", {{"message", {{"type", "string"}}}}}};
  CHECK(action("  echo this\n", text) == Json{{"message", "echo this"}});
  const Json real = {{"properties", {{"x", {{"type", "number"}}}}}};
  CHECK(action("-1.5", real) == Json{{"x", -1.5}});
  const Json two = {{"properties", {{"x", {{"type", "number"}}}, {"y", {{"type", "number"}}}}}};
  CHECK(action("1 2", two).is_null());
  CHECK(lacks(OpenEnv::action_of("1 2", two).second, {"x (number), y (number)"}) == "");
}

TEST_CASE("what is shown of an observation") {
  CHECK(OpenEnv::text_of({{"metadata", {{"step", 1}}}, {"text", "lower"}}) == "lower");
  CHECK(OpenEnv::text_of({{"board", "x.o"}, {"reward", 1.0}, {"done", false}}) == "x.o");
  CHECK(OpenEnv::text_of({{"x", 1}, {"y", nullptr}, {"z", 2}}) == "{\"x\":1,\"z\":2}");
  CHECK(OpenEnv::text_of({{"metadata", {{"text", "from below"}}}, {"done", false}}) == "from below");
  CHECK(OpenEnv::text_of({{"metadata", {{"step", 1}}}}).empty());
}

TEST_CASE("a session for each episode; one seed is one task; wrong actions are told") {
  const Fake fake("");
  for (const std::string& url : {fake.url(), fake.url() + "/ws", "http" + fake.url().substr(2) + "/"}) {
    OpenEnv environment({.url = url, .seconds = 10});
    CHECK(environment.reward_name() == "guess");
    CHECK(environment.tools().is_null());
    CHECK(environment.room(3) == 3);
    const std::vector<Json> first = environment.begin(std::vector{start(4), start(4), start(9)});
    CHECK(first == std::vector<Json>{" From 1 to 9.", " From 1 to 9.", " From 1 to 9."});
    const std::vector<Turn> wrong = environment.step(std::vector{said(0, "no number"), said(1, "{\"x\": 1}")});
    CHECK(lacks(wrong[0].observation.get<std::string>(), {"JSON object", "number"}) == "");
    CHECK(lacks(wrong[1].observation.get<std::string>(), {"Invalid action", "Field required"}) == "");
    CHECK_FALSE(wrong[1].done);
    // the invalid step counted on the server
    const double a = play(environment, 0), b = play(environment, 1);
    CHECK(a >= 0);
    CHECK(b <= a);
    const std::vector<environment::Ending> endings = environment.finish();
    REQUIRE(endings.size() == 3);
    CHECK(endings[0].failure.empty());
    // sessions are free again, and the game of a seed is the same
    CHECK(environment.room(1) == 1);
    environment.begin(std::vector{start(4)});
    CHECK(play(environment, 0) == a);
    environment.finish();
  }
}

TEST_CASE("tools of an environment are listed, called, and rewarded") {
  const Fake fake("--kind tools");
  OpenEnv environment({.url = fake.url(), .seconds = 10});
  REQUIRE(environment.tools().size() == 2);
  CHECK(environment.tools()[0]["function"]["name"] == "guess");
  CHECK(environment.tools()[0]["function"]["parameters"]["required"] == Json::array({"number"}));
  environment.room(2);
  CHECK(environment.begin(std::vector{start(4), start(4)})[1] == " From 1 to 9.");
  const std::vector<Turn> turns = environment.step(std::vector{called(0, "hum", {}), called(1, "give_up", {})});
  CHECK(turns[0].observation[0] == Json{{"role", "tool"}, {"name", "hum"}, {"content", "Error: no tool hum"}});
  CHECK_FALSE(turns[0].done);
  CHECK(turns[1].done);
  CHECK(environment.step(std::vector{said(0, "I am done.")})[0].done);
  const std::vector<environment::Ending> endings = environment.finish();
  CHECK(endings[0].tool_calls == 1);
  CHECK(endings[0].tool_failures == 1);
  CHECK(endings[1].tool_failures == 0);
}

TEST_CASE("a server's room is found out, and waited for") {
  const Fake fake("--sessions 2");
  OpenEnv environment({.url = fake.url(), .seconds = 3});
  CHECK(environment.room(5) == 2);
  CHECK(environment.begin(std::vector{start(1), start(2)}).size() == 2);
  OpenEnv other({.url = fake.url(), .seconds = 0.6});
  CHECK(lacks(raised_by([&] { other.room(1); }), {"remote.80", "no session", "max_concurrent_envs"}) == "");
  environment.finish();
  CHECK(other.room(1) == 1);
}

TEST_CASE("sessions that break, are late or raise have failed; the others go on") {
  const Fake fake("");
  OpenEnv environment({.url = fake.url(), .seconds = 1.5});
  environment.room(4);
  environment.begin(std::vector{start(1), start(1), start(1), start(1)});
  const std::vector<Turn> turns =
      environment.step(std::vector{said(0, "77"), said(1, "78"), said(2, "79"), said(3, "{\"number\": 0}")});
  for (const std::size_t i : {0, 1, 2}) CHECK(turns[i].done);
  CHECK_FALSE(turns[3].done);
  const std::vector<environment::Ending> endings = environment.finish();
  CHECK(endings[0].failure == "unreachable");
  CHECK(endings[1].failure == "timeout");
  CHECK(endings[2].failure == "status");
  CHECK(endings[3].failure.empty());
  environment.room(1);
  environment.begin(std::vector{start(1)});
  environment.step(std::vector{said(0, "79")});
  CHECK(lacks(raised_by([&] { environment.finish(); }), {"remote.82", "EXECUTION_ERROR", "division by zero"}) == "");
}

TEST_CASE("what is no OpenEnv server is refused") {
  CHECK(lacks(raised_by([] { OpenEnv({.url = "ws://127.0.0.1:1", .seconds = 0.5}); }), {"remote.80", "127.0.0.1:1"}) ==
        "");
  CHECK(lacks(raised_by([] { OpenEnv({.url = "wss://127.0.0.1:1", .seconds = 0.5}); }), {"http.9"}) == "");
  const Fake fake("");
  CHECK(lacks(raised_by([&] { OpenEnv({.url = fake.url() + "/other", .seconds = 2}); }), {"remote.81", "404"}) == "");
  CHECK(remote::is_open_env("ws://h:1"));
  CHECK_FALSE(remote::is_open_env("games.Guess"));
}
