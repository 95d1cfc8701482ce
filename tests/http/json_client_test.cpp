#include <rlalgo/http/json_client.hpp>

#include <rlalgo/os/clock.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/raw_server.hpp>

using namespace rlalgo;
using Json = http::JsonClient::Json;
using support::HttpServer;
using support::RawPeer;
using support::RawServer;

namespace {
http::ClientConfig quick(const std::string& url, std::int64_t retries = 0) {
  return {
      .base_url = url, .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = retries, .first_wait = 0.01}};
}
}  // namespace

TEST_CASE("requests carry JSON and bring JSON back, under the path of the address") {
  HttpServer server([](const std::string& path, const std::string& body) {
    return std::pair{200, path == "/empty" ? std::string() : Json{{"path", path}, {"body", body}}.dump()};
  });
  http::JsonClient client(quick(server.url() + "/v1/"));
  CHECK(client.base_url() == server.url() + "/v1/");
  CHECK(client.get("/models") == Json{{"path", "/v1/models"}, {"body", ""}});
  CHECK(client.post("/x", {{"a", "\xFF"}})["body"] == "{\"a\":\"\xEF\xBF\xBD\"}");
  CHECK(http::JsonClient(quick(server.url())).get("/empty").is_null());
}

TEST_CASE("bytes go as they are, and say so") {
  std::string type, body;
  http::Server server({}, [&](const std::shared_ptr<http::Exchange>& exchange) {
    type = *http::find_header(exchange->request().headers, "Content-Type");
    body = exchange->request().body;
    exchange->respond({.status = body.empty() ? 400 : 200, .body = "{}"});
  });
  http::JsonClient client(quick(server.url()));
  const std::string bytes("\0\xFF{\r\n", 5);
  CHECK(client.post_bytes("/x", bytes) == Json::object());
  CHECK(type == "application/octet-stream");
  CHECK(body == bytes);
  CHECK_THROWS_WITH(client.post_bytes("/x", {}), Catch::Contains("[rlalgo.http.2]"));
}

TEST_CASE("a refusal is a value for those who ask, an error for those who need an answer") {
  std::atomic<int> calls = 0;
  HttpServer server([&](const std::string&, const std::string&) {
    ++calls;
    return std::pair{calls < 3 ? 503 : 422, std::string("{\"detail\": \"busy\"}")};
  });
  http::JsonClient client(quick(server.url(), 5));
  const http::Result asked = client.ask("/a", {});
  CHECK(asked.response().status == 422);
  CHECK(asked.attempts == 3);
  CHECK(http::JsonClient::described(asked.response()) == "HTTP 422 busy");
  CHECK_THROWS_WITH(client.post("/a", {}), Catch::Contains("[rlalgo.http.2]") && Catch::Contains("HTTP 422") &&
                                               Catch::Contains("busy") && Catch::Contains("1 attempts") &&
                                               Catch::Contains("POST " + server.url() + "/a"));
  CHECK_THROWS_WITH(client.get("/a"), Catch::Contains("[rlalgo.http.2]"));
}

TEST_CASE("a glance is one attempt, and no answer is no error") {
  std::atomic<int> calls = 0;
  RawServer hangs_up([&](RawPeer& peer, int) {
    ++calls;
    (void)peer.receive_header();
  });
  http::JsonClient client(quick(hangs_up.url(), 5));
  CHECK_FALSE(client.glance("/a").answered());
  CHECK(calls == 1);
  HttpServer busy([](const std::string&, const std::string&) { return std::pair{503, std::string()}; });
  const http::Result result = http::JsonClient(quick(busy.url(), 5)).glance("/a");
  CHECK(result.response().status == 503);
  CHECK(result.attempts == 1);
}

TEST_CASE("a glance takes no longer than a call may") {
  RawServer silent([](RawPeer& peer, int) {
    (void)peer.receive_header();
    (void)peer.receive();
  });
  http::ClientConfig config = quick(silent.url());
  config.call_seconds = 0.2;
  http::JsonClient client(config);
  const os::Stopwatch watch;
  CHECK_FALSE(client.glance("/a").answered());
  CHECK(watch.seconds() < 5);  // 10 without the limit
}

TEST_CASE("failures are numbered errors that say what was waited for") {
  const std::string nobody = support::nobody_url();
  http::JsonClient client(quick(nobody, 1));
  CHECK_THROWS_WITH(client.get("/x"), Catch::Contains("[rlalgo.http.1]") && Catch::Contains("Connection refused") &&
                                          Catch::Contains("a connection") && Catch::Contains("GET " + nobody + "/x") &&
                                          Catch::Contains("2 attempts"));
  RawServer drips([](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.drip("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", 20);
  });
  CHECK_THROWS_WITH(
      http::JsonClient(quick(drips.url())).get("/x", {.seconds = 0.2}),
      Catch::Contains("[rlalgo.http.1]") && Catch::Contains("time is up") && Catch::Contains("the rest of the answer"));
  HttpServer text([](const std::string&, const std::string&) { return std::pair{200, std::string("hello")}; });
  CHECK_THROWS_WITH(http::JsonClient(quick(text.url())).get("/x"),
                    Catch::Contains("[rlalgo.http.3]") && Catch::Contains("hello"));
  CHECK(http::JsonClient(quick(text.url())).ask("/x", {}).response().body == "hello");
  RawServer large([](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
  });
  CHECK_THROWS_WITH(http::JsonClient(quick(large.url(), 3)).get("/x"),
                    Catch::Contains("[rlalgo.http.6]") && Catch::Contains("larger than 268435456 bytes") &&
                        Catch::Contains("1 attempts"));
  HttpServer deep([](const std::string&, const std::string&) { return std::pair{200, std::string(100000, '[')}; });
  CHECK_THROWS_WITH(http::JsonClient(quick(deep.url())).get("/x"),
                    Catch::Contains("[rlalgo.http.6]") && Catch::Contains("nested more than 200 levels deep"));
  std::stop_source stop;
  stop.request_stop();
  CHECK_THROWS_WITH(http::JsonClient(quick(text.url())).get("/x", {.stop = stop.get_token()}),
                    Catch::Contains("[rlalgo.http.7]"));
}

TEST_CASE("a server is waited for, also one that drips, and told about once") {
  std::vector<std::string> told;
  const auto tell = [&](const std::string& line) { told.push_back(line); };
  const std::string nobody = support::nobody_url();
  http::JsonClient client(quick(nobody));
  const os::Stopwatch watch;
  CHECK_THROWS_WITH(client.wait_until_up("/health/", 0.2, "start it", tell),
                    Catch::Contains("[rlalgo.http.5]") && Catch::Contains("no answer (Connection refused") &&
                        Catch::Contains(nobody + "/health/") && Catch::Contains("start it"));
  CHECK(told.size() == 1);
  CHECK(told[0].find("waiting at most 0.2 s") != std::string::npos);
  RawServer drips([](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.drip("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", 50);
  });
  CHECK_THROWS_WITH(http::JsonClient(quick(drips.url())).wait_until_up("/health/", 0.3, ""),
                    Catch::Contains("[rlalgo.http.5]") && Catch::Contains("time is up"));
  CHECK(watch.seconds() < 6.0);

  std::atomic<int> calls = 0;
  HttpServer late([&](const std::string&, const std::string&) {
    return std::pair{++calls < 2 ? 503 : 200, std::string()};
  });
  http::JsonClient(quick(late.url(), 5)).wait_until_up("/health/", 30.0, "");
  CHECK(calls == 2);
  HttpServer refuses([](const std::string&, const std::string&) { return std::pair{404, std::string()}; });
  CHECK_THROWS_WITH(http::JsonClient(quick(refuses.url())).wait_until_up("/no", 0.1, ""),
                    Catch::Contains("[rlalgo.http.5]") && Catch::Contains("found HTTP 404"));
  std::stop_source stop;
  stop.request_stop();
  CHECK_THROWS_WITH(client.wait_until_up("/health/", 30.0, "", {}, stop.get_token()),
                    Catch::Contains("[rlalgo.http.7]"));
}

TEST_CASE("a client whose token is asked to stop gives up what is under way, and everything after") {
  RawServer silent([](RawPeer& peer, int) { (void)peer.receive(); });
  std::stop_source source;
  http::ClientConfig config = quick(silent.url(), 5);
  config.call_seconds = 60;
  config.stop = source.get_token();
  http::JsonClient client(config);
  const os::Stopwatch watch;
  std::thread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    source.request_stop();
  });
  CHECK_THROWS_AS(client.get("/x"), os::Interrupted);
  asks.join();
  CHECK_THROWS_WITH(client.post("/x", {}), Catch::Contains("[rlalgo.http.7]"));
  CHECK_THROWS_AS(client.wait_until_up("/health/", 60.0, ""), os::Interrupted);
  std::stop_source own;  // of one call: instead of the client's
  CHECK_THROWS_WITH(client.get("/x", {.seconds = 0.2, .stop = own.get_token()}), Catch::Contains("[rlalgo.http.1]"));
  CHECK(watch.seconds() < 20.0);
}

TEST_CASE("headers of the client go with every request; a redirect of the health route is a sign of life") {
  std::string header;
  RawServer server([&](RawPeer& peer, int connection) {
    header = peer.receive_header();
    peer.send(connection == 0 ? "HTTP/1.1 307 Temporary Redirect\r\nLocation: /health\r\nContent-Length: 0\r\n\r\n"
                              : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  });
  http::ClientConfig config = quick(server.url());
  config.headers = {{"Authorization", "Bearer k"}};
  http::JsonClient client(config);
  client.wait_until_up("/health/", 5.0, "");
  CHECK_THAT(header, Catch::Contains("Authorization: Bearer k\r\n"));
  CHECK(client.look("/x").response().status == 200);
  CHECK_THAT(header, Catch::Contains("Authorization: Bearer k\r\n"));
}
