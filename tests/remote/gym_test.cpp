#include <atomic>
#include <stop_token>
#include <string>
#include <utility>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/scratch.hpp>

#include <rlalgo/http/server.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/gym.hpp>

using namespace rlalgo;
using remote::Gym;
using remote::GymConfig;
using remote::GymCookies;
using remote::GymKind;
using support::HttpServer;
using support::lacks;
using support::raised_by;
using Json = Gym::Json;

namespace {

// The text in the tests' documents is JSON, which is YAML.
GymConfig config(const std::string& head, double seconds = 5) {
  return {.head = head, .start_seconds = seconds, .retries = 1, .yaml = [](const std::string& text) {
            return Json::parse(text);
          }};
}

std::string port_of(const std::string& url) { return url.substr(url.rfind(':') + 1); }

std::string document(const std::string& url) {
  return Json(R"({"match": {"resources_servers": {"match": {"host": "127.0.0.1", "port": )" + port_of(url) + "}}}}")
      .dump();
}

}  // namespace

TEST_CASE("cookies are kept by name and sent together") {
  GymCookies cookies;
  CHECK(cookies.header().empty());
  cookies.keep({{"set-cookie", "session=abc; Path=/; HttpOnly"}, {"Content-Type", "x"}, {"Set-Cookie", "other=1"}});
  cookies.keep({{"Set-Cookie", "session=def"}, {"Set-Cookie", "nonsense"}});
  CHECK(cookies.header() == "other=1; session=def");
}

TEST_CASE("the head and the servers that are needed are waited for") {
  HttpServer match([](const std::string&, const std::string&) { return std::pair{404, std::string("{}")}; });
  std::atomic<int> looks = 0;
  HttpServer head([&](const std::string& path, const std::string&) {
    if (path != "/global_config_dict_yaml") return std::pair{404, std::string()};
    return ++looks < 3 ? std::pair{503, std::string("starting")} : std::pair{200, document(match.url())};
  });
  std::string told;
  GymConfig settings = config(head.url(), 20);
  settings.retries = 0;
  settings.tell = [&](const std::string& line) { told += line + "\n"; };
  Gym gym(settings);
  gym.discover({{GymKind::resources, "match", "row 1"}});
  CHECK(looks == 3);
  CHECK(gym.directory().find(GymKind::resources, "match", "").url == match.url());
  CHECK(lacks(told, {head.url(), "does not answer", "20 s"}) == "");
  CHECK(lacks(raised_by([&] {
                gym.discover({{GymKind::resources, "mach", "row 2"}});
              }),
              {"remote.71", "row 2", "did you mean match?"}) == "");
}

TEST_CASE("a Gym that is not there, or ends while it is waited for, is an error in time") {
  const os::Stopwatch watch;
  CHECK(lacks(raised_by([] { Gym(config("http://127.0.0.1:1", 1)).discover({}); }),
              {"remote.73", "http://127.0.0.1:1", "nemo_gym_server_timeout", "nemo_gym_auto_start"}) == "");
  CHECK(watch.seconds() < 10);
  GymConfig dying = config("http://127.0.0.1:1", 60);
  dying.still_starting = [] { core::raise("remote", 79, {.what = "it has ended"}); };
  CHECK(lacks(raised_by([&] { Gym(dying).discover({}); }), {"remote.79"}) == "");
  std::stop_source stop;
  stop.request_stop();
  GymConfig stopped = config("http://127.0.0.1:1", 60);
  stopped.stop = stop.get_token();
  CHECK(lacks(raised_by([&] { Gym(stopped).discover({}); }), {"http.7"}) == "");
  HttpServer head([](const std::string&, const std::string&) {
    return std::pair{200, document("http://127.0.0.1:1")};
  });
  CHECK(lacks(raised_by([&] {
                Gym(config(head.url(), 1)).discover({{GymKind::resources, "match", ""}});
              }),
              {"remote.73", "resources server match"}) == "");
}

TEST_CASE("what is no head server is refused at once") {
  for (const std::string body : {"<html>", "{\"a\": 1}", "\"[1]\"", "\"null\""}) {
    INFO(body);
    HttpServer head([&](const std::string&, const std::string&) { return std::pair{200, body}; });
    CHECK(lacks(raised_by([&] { Gym(config(head.url())).discover({}); }), {"remote.70", "nemo_gym_head_port"}) == "");
  }
  HttpServer other([](const std::string&, const std::string&) { return std::pair{404, std::string()}; });
  CHECK(lacks(raised_by([&] { Gym(config(other.url())).discover({}); }), {"remote.70", "404"}) == "");
}

TEST_CASE("calls end as a value with a class") {
  std::atomic<int> calls = 0;
  http::Server server({}, [&](const std::shared_ptr<http::Exchange>& exchange) {
    const std::string& path = exchange->request().target;
    const std::string* cookie = http::find_header(exchange->request().headers, "Cookie");
    ++calls;
    if (path == "/ok")
      exchange->respond({200,
                         {{"Set-Cookie", "s=1; Path=/"}},
                         cookie == nullptr ? "{\"reward\": 1}" : "{\"cookie\": \"" + *cookie + "\"}"});
    else if (path == "/refused")
      exchange->respond({422, {}, "{\"detail\": [{\"loc\": [\"body\", \"expected_answer\"]}]}"});
    else if (path == "/list")
      exchange->respond({200, {}, "[]"});
    else if (path == "/late") {
      static std::vector<std::shared_ptr<http::Exchange>> kept;
      kept.push_back(exchange);
    } else
      exchange->respond({500, {}, "\"Hit an exception\""});
  });
  Gym gym(config(server.url()));
  GymCookies cookies;
  CHECK(gym.post(server.url(), "/ok", {}, 5, &cookies).body == Json{{"reward", 1}});
  CHECK(gym.post(server.url(), "/ok", {}, 5, &cookies).body == Json{{"cookie", "s=1"}});
  CHECK(gym.post(server.url(), "/refused", {}, 5, nullptr).failure == "refused");
  CHECK(lacks(gym.post(server.url(), "/refused", {}, 5, nullptr).detail, {"HTTP 422", "expected_answer"}) == "");
  CHECK(gym.post(server.url(), "/list", {}, 5, nullptr).failure == "malformed");
  CHECK(gym.post(server.url(), "/late", {}, 0.3, nullptr).failure == "timeout");
  CHECK(gym.post("http://127.0.0.1:1", "/ok", {}, 5, nullptr).failure == "unreachable");
  calls = 0;
  CHECK(gym.post(server.url(), "/broken", {}, 5, nullptr).failure == "status");
  CHECK(calls == 2);  // one retry
}

TEST_CASE("failures that a reply itself tells of are found") {
  CHECK(Gym::own_failure({{"reward", 0.0}, {"mask_sample", false}, {"failure_kind", nullptr}}).empty());
  CHECK(Gym::own_failure({{"mask_sample", true}}) == "mask_sample");
  CHECK(Gym::own_failure({{"failure_kind", "judge"}, {"failure_reason", "no answer"}}) == "judge: no answer");
  CHECK(Gym::own_failure({{"_ng_failure_class", "judge_failed"}, {"_ng_failure_judge_error", "x"}}) ==
        "judge_failed: x");
}
