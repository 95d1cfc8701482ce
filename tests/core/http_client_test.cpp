#include <rlalgo/core/http_client.hpp>

#include <atomic>

#include <support/catch.hpp>
#include <support/http_server.hpp>

using namespace rlalgo::core;
using Json = HttpClient::Json;

namespace {
HttpConfig quick(const std::string& url, std::int64_t retries = 1) {
  return {.base_url = url, .connect_seconds = 2, .answer_seconds = 2, .retries = retries, .longest_wait = 0.01};
}
}  // namespace

TEST_CASE("requests carry JSON and bring JSON back, under the path of the address") {
  rlalgo::support::HttpServer server([](const std::string& path, const std::string& body) {
    return std::pair{200, path == "/empty" ? std::string() : Json{{"path", path}, {"body", body}}.dump()};
  });
  HttpClient client(quick(server.url() + "/v1/"));
  CHECK(client.base_url() == server.url() + "/v1/");
  CHECK(client.get("/models") == Json{{"path", "/v1/models"}, {"body", ""}});
  CHECK(client.post("/x", {{"a", "\xFF"}})["body"] == "{\"a\":\"\xEF\xBF\xBD\"}");
  HttpClient plain(quick(server.url()));
  CHECK(plain.get("/empty").is_null());
}

TEST_CASE("transient failures are tried again, others are final") {
  std::atomic<int> calls = 0;
  std::atomic<int> status = 503;
  rlalgo::support::HttpServer server([&](const std::string&, const std::string&) {
    ++calls;
    return std::pair{calls < 3 ? status.load() : 200, std::string("{\"detail\": \"busy\"}")};
  });
  HttpClient client(quick(server.url(), 2));
  CHECK(client.get("/a")["detail"] == "busy");
  CHECK(calls == 3);
  calls = 1;
  HttpClient hasty(quick(server.url(), 0));
  CHECK_THROWS_WITH(hasty.post("/a", {}),
                    Catch::Contains("[rlalgo.core.3]") && Catch::Contains("HTTP 503") && Catch::Contains("busy") &&
                        Catch::Contains("POST " + server.url() + "/a") && Catch::Contains("1 attempts"));
  calls = 0;
  status = 422;
  CHECK_THROWS_WITH(client.get("/a"), Catch::Contains("[rlalgo.core.3]") && Catch::Contains("HTTP 422"));
  CHECK(calls == 1);
}

TEST_CASE("nobody there, no answer, no JSON, no address") {
  std::string url;
  {
    rlalgo::support::HttpServer gone([](const std::string&, const std::string&) {
      return std::pair{200, std::string()};
    });
    url = gone.url();
  }
  HttpClient nobody(quick(url));
  CHECK_THROWS_WITH(nobody.get("/health/"), Catch::Contains("[rlalgo.core.2]") && Catch::Contains(url + "/health/") &&
                                                Catch::Contains("2 attempts"));
  CHECK_THROWS_WITH(nobody.wait_until_up("/health/", 0.1, "start it"),
                    Catch::Contains("[rlalgo.core.6]") && Catch::Contains("no answer") &&
                        Catch::Contains(url + "/health/") && Catch::Contains("start it"));

  std::atomic<bool> slow = true;
  rlalgo::support::HttpServer server([&](const std::string& path, const std::string&) {
    for (int i = 0; slow && i < 500 && path == "/slow"; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return std::pair{path == "/no" ? 404 : 200, std::string("hello")};
  });
  HttpClient client(quick(server.url(), 0));
  const Stopwatch watch;
  CHECK_THROWS_WITH(client.post("/slow", {}, 0.2), Catch::Contains("[rlalgo.core.2]"));
  CHECK(watch.seconds() < 4);
  slow = false;
  CHECK_THROWS_WITH(client.get("/fast"), Catch::Contains("[rlalgo.core.4]") && Catch::Contains("hello"));
  client.wait_until_up("/fast", 1, "");
  CHECK_THROWS_WITH(client.wait_until_up("/no", 0.1, ""), Catch::Contains("[rlalgo.core.6]") && Catch::Contains("404"));

  for (const char* address : {"", "localhost:8000", "https://localhost", "http://", "ftp://x"}) {
    INFO(address);
    CHECK_THROWS_WITH(HttpClient({.base_url = address}), Catch::Contains("[rlalgo.core.5]"));
  }
}
