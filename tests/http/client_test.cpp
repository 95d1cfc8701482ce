#include <rlalgo/http/client.hpp>

#include <atomic>
#include <mutex>
#include <thread>

#include <support/catch.hpp>
#include <support/raw_server.hpp>

using namespace rlalgo;
using support::RawPeer;
using support::RawServer;
using Kind = http::Failure::Kind;

namespace {

http::ClientConfig once(const std::string& url, double seconds = 5.0) {
  return {.base_url = url, .connect_seconds = 2.0, .call_seconds = seconds, .retries = {.retries = 0}};
}

http::ClientConfig patient(const std::string& url, std::int64_t retries, std::vector<http::Retry>& told) {
  http::ClientConfig out = once(url);
  out.retries = {.retries = retries, .first_wait = 0.01, .tell = [&told](const http::Retry& r) { told.push_back(r); }};
  return out;
}

// What a client makes of the bytes that a server sends to one request before it closes.
http::Result answer_of(const std::string& bytes, http::Request request = {}, http::ClientConfig config = {}) {
  RawServer server([&](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.send(bytes);
  });
  config.base_url = server.url();
  config.call_seconds = 5.0;
  config.retries.retries = 0;
  return http::Client(config).call(std::move(request));
}

const std::string hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

}  // namespace

TEST_CASE("a call without an answer is told of, once in so many seconds, and one line is enough for several") {
  RawServer server([](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.pause(450);
    peer.send(hello);
  });
  std::vector<std::string> told;
  http::ClientConfig config = once(server.url());
  config.waiting = [&](const std::string& line) { told.push_back(line); };
  config.waiting_seconds = 0.1;
  CHECK(http::Client(config).call({.method = "GET", .target = "/slow"}).response().body == "hello");
  REQUIRE(told.size() >= 2);
  CHECK(told.size() <= 5);
  CHECK(told[0].find("GET " + server.url() + "/slow has had no answer for") == 0);
  CHECK(told[0].find("up to 5 s") != std::string::npos);
  int lines = 0;
  const auto one = http::one_in(100.0, [&](const std::string&) { ++lines; });
  one("a");
  one("b");
  CHECK(lines == 1);
}

TEST_CASE("a call ends at its deadline whatever drips") {
  const std::pair<const char*, std::string> rows[] = {
      {"", "HTTP/1.1 200 OK\r\n"},                     // the status line
      {"HTTP/1.1 200 OK\r\n", std::string(200, 'x')},  // a header
      {"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", std::string(500, 'x')},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "fffff\r\n" + std::string(500, 'x')},
      {"HTTP/1.1 200 OK\r\n\r\n", std::string(500, 'x')},  // a body up to the end of the connection
      {"", ""},                                            // nothing at all
  };
  for (const auto& [first, drops] : rows) {
    INFO(first);
    RawServer server([&first = first, &drops = drops](RawPeer& peer, int) {
      (void)peer.receive_header();
      peer.send(first);
      peer.drip(drops, 20);
      peer.pause(5000);
    });
    http::Client client(once(server.url(), 0.2));
    const os::Stopwatch watch;
    const http::Result result = client.call({});
    CHECK(watch.seconds() >= 0.19);
    CHECK(watch.seconds() < 2.0);
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::timeout);
    CHECK(result.text().find(drops.empty() ? "an answer" : "the rest of the answer (") != std::string::npos);
  }
}

TEST_CASE("the deadline covers a server that takes no request, and the waits between attempts") {
  RawServer deaf([](RawPeer& peer, int) { peer.pause(5000); });
  http::Client client(once(deaf.url(), 0.2));
  const http::Result stuck = client.call({.method = "POST", .body = std::string(std::size_t{32} << 20, 'x')});
  REQUIRE_FALSE(stuck.answered());
  CHECK(stuck.failure().kind == Kind::timeout);
  CHECK(stuck.text().find("to take the request (") != std::string::npos);
  CHECK(stuck.seconds < 2.0);

  std::vector<http::Retry> told;
  http::ClientConfig config = patient(support::nobody_url(), 1000, told);
  config.call_seconds = 0.3;
  const os::Stopwatch watch;
  const http::Result nobody = http::Client(config).call({});
  CHECK(watch.seconds() < 2.0);
  REQUIRE_FALSE(nobody.answered());
  CHECK(nobody.failure().kind == Kind::unreachable);
  CHECK(nobody.text() == "Connection refused, waiting for a connection");
  CHECK(nobody.attempts == static_cast<std::int64_t>(told.size()) + 1);
  CHECK(told.size() >= 3);
}

TEST_CASE("bodies and headers end at their limits") {
  const http::ClientConfig small{.header_limit = 1000, .body_limit = 1000};
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const auto is_too_large = [&](const std::string& bytes) {
    const http::Result result = answer_of(bytes, {}, small);
    INFO(bytes.substr(0, 80) << " → " << result.text());
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::too_large);
    CHECK(result.text().find("larger than 1000 bytes") != std::string::npos);
  };
  is_too_large(ok + "Content-Length: 1001\r\n\r\n");
  is_too_large(ok + "Content-Length: 9000000000000000000\r\n\r\n{}");
  is_too_large(ok + "Transfer-Encoding: chunked\r\n\r\n" + "ffffff\r\n" + std::string(100000, 'x'));
  is_too_large(ok + "\r\n" + std::string(100000, 'x'));
  is_too_large(ok + "A: " + std::string(100000, 'x'));
  is_too_large(ok + "Transfer-Encoding: chunked\r\n\r\n" + "1;" + std::string(100000, 'x'));
  std::string lines = ok;
  for (int i = 0; i < 5000; ++i) lines += "A: b\r\n";
  is_too_large(lines);
  CHECK(answer_of(ok + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'x'), {}, small).ok());

  // An endless body is not read to its end.
  RawServer endless([&](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.send(ok + "\r\n");
    while (peer.send(std::string(65536, 'x'))) {
    }
  });
  http::ClientConfig config = once(endless.url());
  config.body_limit = std::size_t{8} << 20;
  const http::Result result = http::Client(config).call({});
  REQUIRE_FALSE(result.answered());
  CHECK(result.failure().kind == Kind::too_large);
}

TEST_CASE("half answers and resets are broken, nonsense is malformed") {
  const auto kind_of = [](const std::string& bytes) {
    const http::Result result = answer_of(bytes);
    INFO(bytes.substr(0, 80) << " → " << result.text());
    REQUIRE_FALSE(result.answered());
    return result.failure().kind;
  };
  CHECK(kind_of("") == Kind::broken);
  CHECK(kind_of("HTTP/1.1 20") == Kind::broken);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nA: b\r\n") == Kind::broken);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello") == Kind::broken);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel") == Kind::broken);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n") == Kind::broken);
  CHECK(kind_of("SSH-2.0-OpenSSH_9.2\r\n\r\n") == Kind::malformed);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n") == Kind::malformed);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n") == Kind::malformed);
  RawServer resets([](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
    peer.pause(20);
    peer.reset();
  });
  const http::Result result = http::Client(once(resets.url())).call({});
  REQUIRE_FALSE(result.answered());
  CHECK(result.failure().kind == Kind::broken);
  CHECK(result.text().find("Connection reset by peer, waiting for the rest of the answer (") == 0);
}

TEST_CASE("answers in every framing: length, chunks, end of connection, none") {
  CHECK(answer_of(hello).response().body == "hello");
  CHECK(answer_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n")
            .response()
            .body == "hello");
  CHECK(answer_of("HTTP/1.0 200 OK\r\n\r\nhello").response().body == "hello");
  CHECK(answer_of("HTTP/1.1 204 No Content\r\n\r\n").response().status == 204);
  CHECK(answer_of("HTTP/1.1 100 Continue\r\n\r\n" + hello).response().body == "hello");
  CHECK(answer_of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", {.method = "HEAD"}).ok());
  // More than was announced: the answer is what was announced.
  CHECK(answer_of(hello + "!!!").response().body == "hello");
  const http::Result moved = answer_of("HTTP/1.1 307 Moved\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n");
  REQUIRE(moved.answered());  // not followed
  CHECK(moved.response().status == 307);
  CHECK(*http::find_header(moved.response().headers, "location") == "/there");
}

TEST_CASE("a request is sent as given, under the path of the address; nothing can be smuggled into it") {
  std::mutex mutex;
  std::string seen;
  RawServer server([&](RawPeer& peer, int) {
    const std::string header = peer.receive_header();
    const std::lock_guard lock(mutex);
    seen = header;
    peer.send(hello);
  });
  http::Client client(once(server.url() + "/v1/"));
  REQUIRE(client.call({.target = "/x?y=1", .headers = {{"A", "b\r\nEvil: 1"}}}).ok());
  const std::lock_guard lock(mutex);
  CHECK(seen.starts_with("GET /v1/x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"));
  CHECK(seen.find("\r\nA: b  Evil: 1\r\n") != std::string::npos);
  CHECK(seen.find("Content-Length") == std::string::npos);
  for (const char* target : {"", "x y", "/a b", "/a\r\nEvil: 1"}) {
    const http::Result result = http::Client(once(server.url())).call({.target = target});
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::malformed);
  }
}

TEST_CASE("a connection is used again, and replaced when the server has closed it") {
  RawServer server([](RawPeer& peer, int connection) {
    for (int i = 0; i < (connection == 0 ? 3 : 100); ++i) {
      if (peer.receive_header().empty()) return;
      peer.send(hello);
    }
  });
  http::Client client(once(server.url()));
  for (int i = 0; i < 3; ++i) CHECK(client.call({}).ok());
  CHECK(server.connections() == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // its end has arrived
  for (int i = 0; i < 3; ++i) CHECK(client.call({}).ok());
  CHECK(server.connections() == 2);
  // What is said after an answer is never taken for the next one.
  RawServer chatty([](RawPeer& peer, int connection) {
    (void)peer.receive_header();
    peer.send(connection == 0 ? hello + "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n" : hello);
    peer.pause(5000);
  });
  http::Client careful(once(chatty.url()));
  CHECK(careful.call({}).ok());
  CHECK(careful.call({}).ok());
  CHECK(chatty.connections() == 2);
}

TEST_CASE("attempts are repeated as the policy says, and told about") {
  std::vector<http::Retry> told;
  RawServer server([](RawPeer& peer, int connection) {
    (void)peer.receive_header();
    if (connection == 0) return peer.reset();
    if (connection == 1) return (void)peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal");
    if (connection == 2)
      peer.send("HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    if (connection == 3) peer.send("HTTP/1.1 503 Later\r\nConnection: close\r\n\r\n");
    peer.send(hello);
  });
  const http::Result result = http::Client(patient(server.url(), 9, told)).call({.target = "/x"});
  REQUIRE(result.ok());
  CHECK(result.attempts == 5);
  REQUIRE(told.size() == 4);
  CHECK(told[0].where == "GET " + server.url() + "/x");
  CHECK(told[1].what.find("the server closed the connection, waiting for the rest of the answer (") == 0);
  CHECK(told[2].what == "HTTP 429");
  CHECK(told[3].text().find("HTTP 503; attempt 5 of 10 in 0.1 s") != std::string::npos);
}

TEST_CASE("Retry-After is obeyed; one beyond the deadline is not waited for") {
  std::vector<http::Retry> told;
  RawServer server([](RawPeer& peer, int connection) {
    (void)peer.receive_header();
    const std::string seconds = connection == 0 ? "1" : "100";
    peer.send("HTTP/1.1 429 Slow\r\nRetry-After: " + seconds + "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  });
  const os::Stopwatch watch;
  const http::Result result = http::Client(patient(server.url(), 5, told)).call({});
  REQUIRE(result.answered());
  CHECK(result.response().status == 429);
  CHECK(result.attempts == 2);
  CHECK(watch.seconds() >= 1.0);
  CHECK(watch.seconds() < 4.0);
  REQUIRE(told.size() == 1);
  CHECK(told[0].wait_seconds == 1.0);
}

TEST_CASE("a call is given up within 100 ms of the wish, wherever it waits") {
  const auto seconds_to_give_up = [](const std::string& url, http::Request request, http::RetryPolicy retries) {
    std::stop_source stop;
    http::ClientConfig config{.base_url = url, .call_seconds = 30.0, .retries = std::move(retries)};
    http::Client client(config);
    std::chrono::steady_clock::time_point wished;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      wished = std::chrono::steady_clock::now();
      stop.request_stop();
    });
    const http::Result result = client.call(std::move(request), {.stop = stop.get_token()});
    const auto took = std::chrono::steady_clock::now();
    other.join();
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::cancelled);
    return std::chrono::duration<double>(took - wished).count();
  };
  // A busy machine may keep one of them waiting, not five.
  const auto gives_up = [&](const std::string& url, const http::Request& request, const http::RetryPolicy& retries) {
    double soonest = 10.0;
    for (int i = 0; i < 5 && soonest >= 0.1; ++i)
      soonest = std::min(soonest, seconds_to_give_up(url, request, retries));
    CHECK(soonest < 0.1);
  };
  RawServer silent([](RawPeer& peer, int) { peer.pause(10000); });
  gives_up(silent.url(), {}, {.retries = 0});
  gives_up(silent.url(), {.method = "POST", .body = std::string(std::size_t{32} << 20, 'x')}, {.retries = 0});
  RawServer endless([](RawPeer& peer, int) {
    peer.send("HTTP/1.1 200 OK\r\n\r\n");
    while (peer.pause(1) && peer.send("xxxxxxxx")) {
    }
  });
  gives_up(endless.url(), {}, {.retries = 0});
  gives_up(support::nobody_url(), {}, {.retries = 1, .first_wait = 20.0, .longest_wait = 20.0});
  // Before it began.
  std::stop_source stop;
  stop.request_stop();
  const http::Result never = http::Client(once(silent.url())).call({}, {.stop = stop.get_token()});
  REQUIRE_FALSE(never.answered());
  CHECK(never.failure().kind == Kind::cancelled);
}

TEST_CASE("a 2xx body is handed over in parts as it comes; others are kept and limited") {
  RawServer server([](RawPeer& peer, int connection) {
    (void)peer.receive_header();
    if (connection == 1) return (void)peer.send("HTTP/1.1 500 No\r\n\r\n" + std::string(5000, 'x'));
    peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char* part : {"3\r\none\r\n", "3\r\ntwo\r\n", "0\r\n\r\n"}) {
      peer.send(part);
      peer.pause(30);
    }
  });
  http::ClientConfig config = once(server.url());
  config.body_limit = 4;
  http::Client client(config);
  std::vector<std::string> parts;
  const http::CallOptions streamed{.on_body = [&](std::string_view part) { parts.emplace_back(part); }};
  const http::Result result = client.call({}, streamed);
  REQUIRE(result.ok());
  CHECK(parts == std::vector<std::string>{"one", "two"});
  CHECK(result.response().body.empty());
  const http::Result refused = client.call({}, streamed);
  REQUIRE_FALSE(refused.answered());
  CHECK(refused.failure().kind == Kind::too_large);
}

TEST_CASE("a server that is slow to accept is waited for, a name without address is named") {
  RawServer slow(
      [](RawPeer& peer, int) {
        (void)peer.receive_header();
        peer.send(hello);
      },
      100);
  CHECK(http::Client(once(slow.url())).call({}).ok());
  const http::Result localhost = http::Client(once("http://localhost:" + std::to_string(slow.port()))).call({});
  CHECK(localhost.ok());
  const http::Result nowhere = http::Client(once("http://no-such-host.invalid", 5.0)).call({});
  REQUIRE_FALSE(nowhere.answered());
  CHECK(nowhere.text().find("waiting for the address of no-such-host.invalid") != std::string::npos);
  CHECK(nowhere.seconds < 6.0);
}

TEST_CASE("calls of several threads share one client") {
  RawServer server([](RawPeer& peer, int) {
    while (!peer.receive_header().empty()) peer.send(hello);
  });
  http::Client client(once(server.url()));
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) good += client.call({}).ok() ? 1 : 0;
    });
  for (std::thread& one : threads) one.join();
  CHECK(good == 200);
  CHECK(server.connections() <= 4);
}

TEST_CASE("addresses") {
  for (const char* address :
       {"", "localhost:8000", "https://localhost", "http://", "http:///x", "ftp://x", "http://a b", "http://h:0",
        "http://h:70000", "http://h:1x", "http://u@h", "http://h/?q", "http://[::1", "http://[::1]8000"}) {
    INFO(address);
    CHECK_THROWS_WITH(http::Client({.base_url = address}), Catch::Contains("[rlalgo.http.4]"));
  }
  for (const char* address : {"http://h", "http://h:1/", "http://[::1]:80/v1", "http://127.0.0.1:65535"})
    CHECK(http::Client({.base_url = address}).base_url() == address);
}
