#include <rlalgo/http/websocket.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/detail/hybi13.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <support/catch.hpp>
#include <support/raw_server.hpp>

using namespace rlalgo;
using support::RawPeer;
using support::RawServer;
using Kind = http::Failure::Kind;
namespace beast = boost::beast;

namespace {

// Beast's own server, one connection after the other: what `script` does with each. A script ends when its client goes.
class BeastServer {
 public:
  using Stream = beast::websocket::stream<boost::asio::ip::tcp::socket>;

  explicit BeastServer(std::function<void(Stream&)> script)
      : acceptor_(context_, {boost::asio::ip::address_v4::loopback(), 0}), thread_([this, script = std::move(script)] {
          while (true) {
            boost::asio::ip::tcp::socket socket(context_);
            acceptor_.accept(socket);
            if (stopping_) return;
            Stream stream(std::move(socket));
            try {
              stream.accept();
              script(stream);
            } catch (const boost::system::system_error&) {
            }
          }
        }) {}
  ~BeastServer() {
    stopping_ = true;
    boost::asio::ip::tcp::socket last(context_);
    last.connect(acceptor_.local_endpoint());
    thread_.join();
  }
  BeastServer(const BeastServer&) = delete;
  BeastServer& operator=(const BeastServer&) = delete;

  [[nodiscard]] std::string url() const {
    return "ws://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

void echo(BeastServer::Stream& stream) {
  while (true) {
    beast::flat_buffer buffer;
    stream.read(buffer);
    stream.text(stream.got_text());
    stream.write(buffer.data());
  }
}

std::string ws(const RawServer& server) { return "ws" + server.url().substr(4); }

http::WebSocketConfig quick(const std::string& url, double seconds = 2.0) {
  return {.url = url, .connect_seconds = seconds, .call_seconds = seconds, .close_seconds = seconds, .ping_seconds = 0};
}

// The server's half of the handshake.
void upgrade(RawPeer& peer) {
  const std::string head = peer.receive_header();
  const std::string name = "Sec-WebSocket-Key: ";
  const std::size_t at = head.find(name);
  if (at == std::string::npos) return;
  const std::size_t begin = at + name.size();
  beast::websocket::detail::sec_ws_accept_type accept;
  beast::websocket::detail::make_sec_ws_accept(accept, head.substr(begin, head.find('\r', begin) - begin));
  peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
            std::string(accept.data(), accept.size()) + "\r\n\r\n");
}

// An unmasked frame; `final` as RFC 6455's FIN.
std::string frame(int opcode, const std::string& payload, bool final = true) {
  std::string out(1, static_cast<char>((final ? 0x80 : 0) | opcode));
  if (payload.size() < 126) {
    out += static_cast<char>(payload.size());
  } else {
    out += {static_cast<char>(126), static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size() & 0xff)};
  }
  return out + payload;
}
constexpr int more = 0, text = 1, binary = 2, goodbye = 8, ping = 9, pong = 10;

// What a client receives of the bytes that a server sends after the handshake.
http::Received received(const std::string& bytes, http::WebSocketConfig config = quick(""), bool stays = false) {
  RawServer server([&](RawPeer& peer, int) {
    upgrade(peer);
    peer.send(bytes);
    if (stays)
      while (!peer.receive().empty()) {
      }
  });
  config.url = ws(server);
  http::WebSocket socket(config);
  const http::Result connected = socket.connect();
  REQUIRE(connected.answered());
  REQUIRE(connected.response().status == 101);
  http::Received out = socket.receive();
  CHECK(socket.connected() == out.is_message());
  return out;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("messages go both ways, whole and as they were") {
  const BeastServer server(echo);
  http::WebSocket socket(quick(server.url() + "/ws?session_id=7"));
  REQUIRE(socket.connect().response().status == 101);
  const std::string large(1 << 20, 'x');
  for (const std::string& message : {std::string("{\"type\": \"reset\"}"), std::string(), std::string("ä€😀"), large}) {
    REQUIRE_FALSE(socket.send(message));
    const http::Received got = socket.receive();
    REQUIRE(got.is_message());
    CHECK(got.message().data == message);
    CHECK_FALSE(got.message().binary);
  }
  const std::string bytes("\0\xff\x80", 3);
  REQUIRE_FALSE(socket.send_binary(bytes));
  const http::Received got = socket.receive();
  REQUIRE(got.is_message());
  CHECK(got.message().data == bytes);
  CHECK(got.message().binary);
  CHECK_FALSE(socket.close());
  CHECK_FALSE(socket.connected());
  REQUIRE(socket.connect().ok() == false);  // 101 is no 2xx …
  CHECK(socket.connected());                // … but a connection
}

TEST_CASE("the handshake carries the target and headers; a server that declines has answered") {
  std::string head;
  RawServer server([&](RawPeer& peer, int connection) {
    if (connection == 0) {
      head = peer.receive_header();
      peer.send("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nfull");
    } else {
      upgrade(peer);
      (void)peer.receive();
    }
  });
  http::WebSocketConfig config = quick(ws(server) + "/base/ws?a=b");
  config.headers = {{"Authorization", "Bearer t"}};
  http::WebSocket socket(config);
  const http::Result declined = socket.connect();
  REQUIRE(declined.answered());
  CHECK(declined.response().status == 503);
  REQUIRE(http::find_header(declined.response().headers, "retry-after") != nullptr);
  CHECK(*http::find_header(declined.response().headers, "retry-after") == "3");
  CHECK(declined.response().body == "full");
  CHECK_FALSE(socket.connected());
  CHECK(head.starts_with("GET /base/ws?a=b HTTP/1.1\r\n"));
  CHECK(head.find("Authorization: Bearer t\r\n") != std::string::npos);
  CHECK(head.find("Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n") != std::string::npos);
  CHECK(socket.connect().response().status == 101);
}

TEST_CASE("addresses that are no WebSocket's") {
  for (const char* url : {"http://a:1/ws", "ws://", "wss://a:1", "ws://a:b/", "ws://a:1/#x", "ws://a:1/x y", "a:1"}) {
    INFO(url);
    CHECK_THROWS_WITH(http::WebSocket({.url = url}), Catch::Matchers::Contains("[rlalgo.http.9]"));
  }
  http::WebSocket nobody(quick("ws" + support::nobody_url().substr(4)));
  CHECK(nobody.connect().failure().kind == Kind::unreachable);
  CHECK(nobody.receive().failure().kind == Kind::broken);
  CHECK(nobody.send("x")->kind == Kind::broken);
  CHECK_FALSE(nobody.close());
}

TEST_CASE("fragments are one message, with pings between them answered") {
  std::string answers;
  {
    RawServer server([&](RawPeer& peer, int) {
      upgrade(peer);
      peer.send(frame(text, "one \xe2", false) + frame(ping, "there?") + frame(more, "\x82", false));
      while (answers.size() < 12) answers += peer.receive();
      peer.send(frame(more, "\xac two"));
      (void)peer.receive();
    });
    http::WebSocket socket(quick(ws(server)));
    REQUIRE(socket.connect().answered());
    const http::Received got = socket.receive();
    REQUIRE(got.is_message());
    CHECK(got.message().data == "one € two");
  }
  REQUIRE(answers.size() == 2 + 4 + 6);
  CHECK((answers[0] & 0x0f) == pong);
  std::string payload = answers.substr(6);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] ^= answers[2 + i % 4];  // clients mask
  CHECK(payload == "there?");
}

TEST_CASE("what is no valid frame ends the connection, each with its kind") {
  const std::pair<const char*, std::string> malformed[] = {
      {"text that is no UTF-8", frame(text, "\xff\xfe")},
      {"a character cut in two at the end", frame(text, "\xe2\x82")},
      {"a surrogate", frame(text, "\xed\xa0\x80")},
      {"invalid only across fragments", frame(text, "\xe2", false) + frame(more, "a")},
      {"reserved bits", "\xc1\x01x"},
      {"a reserved opcode", frame(3, "x")},
      {"a masked frame", "\x81\x81" + std::string(4, '\0') + "x"},
      {"a continuation of nothing", frame(more, "x")},
      {"a message within a message", frame(text, "a", false) + frame(text, "b")},
      {"a fragmented ping", frame(ping, "x", false)},
      {"a ping of 200 bytes", frame(ping, std::string(200, 'x'))},
      {"a length that is not the shortest", std::string("\x81\x7e\x00\x01x", 5)},
      {"a goodbye of one byte", frame(goodbye, "x")},
      {"a goodbye with a forbidden code", frame(goodbye, std::string("\x03\xed", 2))},  // 1005
  };
  for (const auto& [what, bytes] : malformed) {
    INFO(what);
    const http::Received got = received(bytes, quick(""), true);
    INFO(got.text());
    REQUIRE_FALSE(got.is_message());
    REQUIRE_FALSE(got.is_closed());
    CHECK(got.failure().kind == Kind::malformed);
  }
}

TEST_CASE("messages beyond the limit, in one frame, announced, or without end") {
  http::WebSocketConfig config = quick("");
  config.message_limit = 100;
  CHECK(received(frame(text, std::string(100, 'x')), config).is_message());
  CHECK(received(frame(text, std::string(101, 'x')), config, true).failure().kind == Kind::too_large);
  const std::string announced("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", 10);  // 2^63 − 1 bytes
  CHECK(received(announced, config, true).failure().kind == Kind::too_large);
  RawServer endless([](RawPeer& peer, int) {
    upgrade(peer);
    for (bool open = peer.send(frame(text, "x", false)); open; open = peer.send(frame(more, "xxxxxxxx", false))) {
    }
  });
  config.url = ws(endless);
  http::WebSocket socket(config);
  REQUIRE(socket.connect().answered());
  CHECK(socket.receive().failure().kind == Kind::too_large);
}

TEST_CASE("every call ends at its deadline, whatever drips or never pauses") {
  struct Row {
    const char* what;
    std::function<void(RawPeer&)> script;
  };
  const Row rows[] = {
      {"silence", [](RawPeer& peer) { peer.pause(5000); }},
      {"a dripping frame", [](RawPeer& peer) { peer.drip(frame(text, std::string(500, 'x')), 20); }},
      {"empty fragments",
       [](RawPeer& peer) {
         peer.send(frame(text, "x", false));
         for (bool open = true; open;) open = peer.send(frame(more, "", false));
       }},
      {"pings without end",
       [](RawPeer& peer) {
         for (bool open = true; open && peer.pause(1);) open = peer.send(frame(ping, "x"));
       }},
      {"pongs without end",
       [](RawPeer& peer) {
         std::string many;
         for (int i = 0; i < 5000; ++i) many += frame(pong, "");
         for (bool open = true; open;) open = peer.send(many);
       }},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    RawServer server([&](RawPeer& peer, int) {
      upgrade(peer);
      row.script(peer);
    });
    http::WebSocket socket(quick(ws(server), 0.2));
    REQUIRE(socket.connect({.seconds = 5}).answered());
    const auto begin = std::chrono::steady_clock::now();
    const http::Received got = socket.receive();
    REQUIRE_FALSE(got.is_message());
    CHECK(got.failure().kind == Kind::timeout);
    CHECK(seconds_since(begin) < 2.0);
  }
}

TEST_CASE("a handshake that drips, has no end or is none") {
  const auto answer = [](std::function<void(RawPeer&)> script) {
    RawServer server([&](RawPeer& peer, int) {
      (void)peer.receive_header();
      script(peer);
    });
    http::WebSocket socket(quick(ws(server), 0.3));
    const auto begin = std::chrono::steady_clock::now();
    http::Result out = socket.connect();
    CHECK(seconds_since(begin) < 2.0);
    CHECK_FALSE(socket.connected());
    return out;
  };
  const std::string accepted = "HTTP/1.1 101 Switching Protocols\r\n";
  CHECK(answer([&](RawPeer& peer) { peer.drip(accepted + std::string(500, 'x'), 20); }).failure().kind ==
        Kind::timeout);
  CHECK(answer([&](RawPeer& peer) {
          peer.send(accepted);
          while (peer.send("X-More: yes\r\n")) {
          }
        })
            .failure()
            .kind == Kind::too_large);
  CHECK(answer([](RawPeer& peer) { peer.send("I am no server\r\n\r\n"); }).failure().kind == Kind::malformed);
  CHECK(answer([](RawPeer&) {}).failure().kind == Kind::broken);
  CHECK(answer([](RawPeer& peer) { peer.reset(); }).failure().kind == Kind::broken);
  // 101 without the proof that the key was read.
  CHECK(answer([&](RawPeer& peer) {
          peer.send(accepted + "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n");
        })
            .failure()
            .kind == Kind::malformed);
}

TEST_CASE("a server that reads nothing, goes away, or closes one half") {
  SECTION("a message that nobody takes") {
    RawServer server([](RawPeer& peer, int) {
      upgrade(peer);
      peer.pause(5000);
    });
    http::WebSocket socket(quick(ws(server), 0.3));
    REQUIRE(socket.connect().answered());
    const auto failure = socket.send_binary(std::string(std::size_t{64} << 20, 'x'));
    REQUIRE(failure);
    CHECK(failure->kind == Kind::timeout);
    CHECK(failure->waited_for.find("67108864 bytes") != std::string::npos);
    CHECK_FALSE(socket.connected());
  }
  SECTION("gone in the middle of a message") {
    const http::Received got = received(frame(text, std::string(50, 'x')).substr(0, 20));
    CHECK(got.failure().kind == Kind::broken);
    CHECK(got.failure().waited_for.find("18 bytes so far") != std::string::npos);
  }
  SECTION("gone without a goodbye") { CHECK(received("").failure().kind == Kind::broken); }
  SECTION("reset") {
    RawServer server([](RawPeer& peer, int) {
      upgrade(peer);
      peer.reset();
    });
    http::WebSocket socket(quick(ws(server)));
    REQUIRE(socket.connect().answered());
    CHECK(socket.receive().failure().kind == Kind::broken);
  }
}

TEST_CASE("goodbyes: the server's, ours, and ones that are never answered") {
  const http::Received got = received(frame(goodbye, std::string("\x03\xf3", 2) + "out of memory"), quick(""), true);
  REQUIRE(got.is_closed());
  CHECK(got.closed().code == 1011);
  CHECK(got.closed().reason == "out of memory");
  CHECK(got.text() == "closed by the server: 1011 out of memory");
  CHECK(received(frame(goodbye, ""), quick(""), true).closed().code == 1005);

  std::atomic<std::uint16_t> code = 0;
  const BeastServer server([&](BeastServer::Stream& stream) {
    beast::flat_buffer buffer;
    boost::system::error_code error;
    stream.write(boost::asio::buffer("unread", 6));
    stream.read(buffer, error);
    code = stream.reason().code;
  });
  http::WebSocket polite(quick(server.url()));
  REQUIRE(polite.connect().answered());
  CHECK_FALSE(polite.close(1001, "done"));
  while (code == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(code == 1001);

  RawServer deaf([](RawPeer& peer, int) {
    upgrade(peer);
    while (peer.pause(1) && peer.send(frame(text, "still talking"))) {
    }
  });
  http::WebSocket socket(quick(ws(deaf), 0.2));
  REQUIRE(socket.connect({.seconds = 5}).answered());
  const auto begin = std::chrono::steady_clock::now();
  CHECK(socket.close()->kind == Kind::timeout);
  CHECK(seconds_since(begin) < 2.0);
  CHECK_FALSE(socket.connected());
}

TEST_CASE("a silent server is pinged, and is gone when it does not answer") {
  std::atomic<int> pings = 0;
  RawServer server([&](RawPeer& peer, int connection) {
    upgrade(peer);
    while (!peer.receive().empty()) {
      if (++pings == 3 || connection == 1) break;
      peer.send(frame(pong, ""));
    }
    if (connection == 0) peer.send(frame(text, "here"));
    if (connection == 1) peer.pause(5000);
  });
  http::WebSocketConfig config = quick(ws(server), 5);
  config.ping_seconds = 0.05;
  config.pong_seconds = 2;
  http::WebSocket socket(config);
  REQUIRE(socket.connect().answered());
  const http::Received alive = socket.receive();
  REQUIRE(alive.is_message());
  CHECK(pings == 3);

  config.pong_seconds = 0.1;
  http::WebSocket dead(config);
  REQUIRE(dead.connect().answered());
  const auto begin = std::chrono::steady_clock::now();
  const http::Received gone = dead.receive();
  REQUIRE_FALSE(gone.is_message());
  CHECK(gone.failure().kind == Kind::timeout);
  CHECK(gone.failure().reason == "a ping had no answer");
  CHECK(seconds_since(begin) < 2.0);
}

TEST_CASE("a stop token ends any call within milliseconds") {
  RawServer server([](RawPeer& peer, int connection) {
    if (connection == 0) return void(peer.pause(5000));  // no handshake
    upgrade(peer);
    peer.pause(5000);
  });
  const auto given_up = [](const std::function<std::optional<http::Failure>(std::stop_token)>& call) {
    std::stop_source source;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      source.request_stop();
    });
    const auto begin = std::chrono::steady_clock::now();
    const auto failure = call(source.get_token());
    CHECK(seconds_since(begin) < 1.0);
    later.join();
    REQUIRE(failure);
    CHECK(failure->kind == Kind::cancelled);
  };
  const http::WebSocketConfig config = quick(ws(server), 5);
  http::WebSocket socket(config);
  given_up([&](std::stop_token stop) { return socket.connect({.stop = stop}).failure(); });
  REQUIRE(socket.connect().answered());
  given_up([&](std::stop_token stop) { return socket.receive({.stop = stop}).failure(); });
  REQUIRE(socket.connect().answered());
  given_up([&](std::stop_token stop) { return socket.send(std::string(std::size_t{64} << 20, 'x'), {.stop = stop}); });
  REQUIRE(socket.connect().answered());
  given_up([&](std::stop_token stop) { return socket.close(1000, "", {.stop = stop}); });
  std::stop_source before;
  before.request_stop();
  CHECK(socket.connect({.stop = before.get_token()}).failure().kind == Kind::cancelled);
}
