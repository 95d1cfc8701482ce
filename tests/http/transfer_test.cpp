#include <chrono>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/raw_server.hpp>
#include <support/scratch.hpp>

#include <rlalgo/http/transfer.hpp>

using namespace rlalgo::http;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::RawPeer;
using rlalgo::support::RawServer;
using rlalgo::support::ScopedVariable;

namespace {

using Kind = Failure::Kind;

std::string url_of(const RawServer& server, const std::string& path = "/x") {
  return "http://127.0.0.1:" + std::to_string(server.port()) + path;
}

// No proxy of the machine's.
struct NoProxy {
  ScopedVariable list{"no_proxy", "*"};
};

}  // namespace

TEST_CASE("the body goes to the sink in parts; headers come first; chunks, lengths and ends are understood") {
  const NoProxy none;
  for (const std::string& head :
       {std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-A: b\r\n\r\n0123456789"),
        std::string(
            "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n"),
        std::string("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\n\r\n0123456789")}) {
    std::string asked;
    RawServer server([&](RawPeer& peer, int) {
      asked = peer.receive_header();
      peer.drip(head, 1);
    });
    std::string body, seen;
    const Result result = transfer({.url = url_of(server, "/a/b?c=d"),
                                    .headers = {{"X-Own", "1"}},
                                    .on_head =
                                        [&](const Response& response) {
                                          CHECK(body.empty());
                                          seen = *find_header(response.headers, "x-a");
                                          return true;
                                        },
                                    .on_body = [&](std::string_view part) { body += part; }});
    REQUIRE(result.ok());
    CHECK(body == "0123456789");
    CHECK(seen == "b");
    CHECK(result.response().body.empty());
    CHECK(lacks(asked,
                {"GET /a/b?c=d HTTP/1.1\r\n", "Host: 127.0.0.1:", "X-Own: 1\r\n", "Accept-Encoding: identity"}) == "");
  }
}

TEST_CASE("other answers keep their body; a head that is declined ends the transfer") {
  const NoProxy none;
  RawServer server([](RawPeer& peer, int) {
    (void)peer.receive_header();
    peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone");
  });
  std::string body;
  const auto sink = [&](std::string_view part) { body += part; };
  const Result result = transfer({.url = url_of(server), .on_body = sink});
  REQUIRE(result.answered());
  CHECK(result.response().status == 404);
  CHECK(result.response().body == "gone");
  CHECK(body.empty());
  const Result declined =
      transfer({.url = url_of(server), .on_head = [](const Response&) { return false; }, .on_body = sink});
  REQUIRE(declined.answered());
  CHECK(declined.response().body.empty());
}

TEST_CASE("a transfer lasts as long as it makes progress") {
  const NoProxy none;
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n";
  SECTION("silence") {
    RawServer server([&](RawPeer& peer, int) {
      (void)peer.receive_header();
      peer.send(head + "abc");
      (void)peer.receive();
    });
    const Result result = transfer({.url = url_of(server), .idle_seconds = 0.3, .on_body = [](std::string_view) {}});
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::timeout);
    CHECK(lacks(result.failure().text(), {"time is up", "bytes so far"}) == "");
  }
  SECTION("a byte now and then") {
    RawServer server([&](RawPeer& peer, int) {
      (void)peer.receive_header();
      peer.send(head);
      peer.drip(std::string(1000, 'x'), 20);
    });
    const Result result = transfer({.url = url_of(server),
                                    .idle_seconds = 5,
                                    .window_seconds = 0.4,
                                    .window_bytes = 1000,
                                    .on_body = [](std::string_view) {}});
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::timeout);
    CHECK(lacks(result.failure().text(), {"only ", "bytes in 0 s"}) == "");
  }
  SECTION("slow, and fast enough") {
    RawServer server([&](RawPeer& peer, int) {
      (void)peer.receive_header();
      peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
      peer.drip(std::string(100, 'x'), 10);
    });
    std::size_t bytes = 0;
    const Result result = transfer(
        {.url = url_of(server), .window_seconds = 0.2, .window_bytes = 3, .on_body = [&](std::string_view part) {
           bytes += part.size();
         }});
    CHECK(result.ok());
    CHECK(bytes == 100);
  }
  SECTION("an end that is too early") {
    RawServer server([&](RawPeer& peer, int) {
      (void)peer.receive_header();
      peer.send(head + "abc");
    });
    const Result result = transfer({.url = url_of(server), .on_body = [](std::string_view) {}});
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::broken);
  }
  SECTION("given up") {
    RawServer server([&](RawPeer& peer, int) { (void)peer.receive(), (void)peer.receive(); });
    std::stop_source stop;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      stop.request_stop();
    });
    const Result result = transfer({.url = url_of(server), .stop = stop.get_token()});
    later.join();
    REQUIRE_FALSE(result.answered());
    CHECK(result.failure().kind == Kind::cancelled);
  }
}

TEST_CASE("limits, and what is no HTTP") {
  const NoProxy none;
  const auto kind_of = [](const std::string& answer) {
    RawServer server([&](RawPeer& peer, int) {
      (void)peer.receive_header();
      peer.send(answer);
    });
    const Result result = transfer({.url = url_of(server), .header_limit = 1000, .body_limit = 10});
    REQUIRE_FALSE(result.answered());
    return result.failure().kind;
  };
  CHECK(kind_of("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890") == Kind::too_large);
  CHECK(kind_of("HTTP/1.1 200 OK\r\nX: " + std::string(2000, 'x') + "\r\n\r\n") == Kind::too_large);
  CHECK(kind_of("SSH-2.0-OpenSSH\r\n\r\n") == Kind::malformed);
  const Result nobody = transfer({.url = "http://127.0.0.1:1/"});
  REQUIRE_FALSE(nobody.answered());
  CHECK(nobody.failure().kind == Kind::unreachable);
}

TEST_CASE("a server that speaks no TLS; addresses that are none") {
  const NoProxy none;
  RawServer server([](RawPeer& peer, int) {
    (void)peer.receive();
    peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  const Result result = transfer({.url = "https://localhost:" + std::to_string(server.port())});
  REQUIRE_FALSE(result.answered());
  CHECK(lacks(result.failure().text(), {"TLS failed"}) == "");
  for (const char* url : {"ftp://a/b", "http://", "https://a:0/", "http://a b/", "https://u@h/", "a/b"})
    CHECK(lacks(raised_by([&] { (void)transfer({.url = url}); }), {"http.10: ", url}) == "");
}

TEST_CASE("proxies of the environment: a tunnel for https, whole addresses for http, and whom they are not for") {
  std::vector<std::string> asked;
  RawServer proxy([&](RawPeer& peer, int) {
    asked.push_back(peer.receive_header());
    peer.send(asked.back().starts_with("CONNECT") ? "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
                                                  : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  });
  const std::string address = "http://127.0.0.1:" + std::to_string(proxy.port());
  const ScopedVariable no("no_proxy", ""), no_upper("NO_PROXY", ""), plain("http_proxy", address),
      secure("HTTPS_PROXY", address), lower("https_proxy", "");
  const Result first = transfer({.url = "http://hub.test/a?b=c"});
  REQUIRE(first.ok());
  CHECK(first.response().body == "ok");
  CHECK(lacks(asked.at(0), {"GET http://hub.test/a?b=c HTTP/1.1\r\n", "Host: hub.test\r\n"}) == "");
  const Result second = transfer({.url = "https://hub.test/a"});
  REQUIRE_FALSE(second.answered());
  CHECK(lacks(second.failure().text(), {"the proxy answers HTTP/1.1 407", "hub.test:443"}) == "");
  CHECK(lacks(asked.at(1), {"CONNECT hub.test:443 HTTP/1.1\r\n"}) == "");
  CHECK(detail::excepted("a.org, .test", "hub.test"));
  CHECK(detail::excepted("test", "hub.test"));
  CHECK(detail::excepted("*", "x"));
  CHECK_FALSE(detail::excepted("est", "hub.test"));
  CHECK_FALSE(detail::excepted("", "hub.test"));
  const ScopedVariable wrong("http_proxy", "socks5://x");
  CHECK(lacks(raised_by([] { (void)transfer({.url = "http://hub.test/"}); }), {"http.10: ", "socks5"}) == "");
}

TEST_CASE("where a redirect leads, and whose address one is") {
  CHECK(resolve_location("https://a/b/c?d", "https://e/f") == "https://e/f");
  CHECK(resolve_location("https://a/b/c?d", "//e/f") == "https://e/f");
  CHECK(resolve_location("https://a:1/b/c?d", "/f?g") == "https://a:1/f?g");
  CHECK(resolve_location("https://a/b/c?d/e", "f") == "https://a/b/f");
  CHECK(resolve_location("https://a", "f") == "https://a/f");
  CHECK(origin_of("https://Hub.CO/x") == "https://hub.co:443");
  CHECK(origin_of("http://a") == "http://a:80");
  CHECK(origin_of("https://a:8443/x") != origin_of("https://a/x"));
  CHECK(origin_of("https://a/") != origin_of("http://a/"));
  CHECK(origin_of("https://[::1]:8/x") == "https://::1:8");
}
