#include <rlalgo/http/server.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/http/client.hpp>

#include <support/catch.hpp>
#include <support/raw_client.hpp>

using namespace rlalgo;
using support::RawClient;
using Shared = std::shared_ptr<http::Exchange>;

namespace {

http::ClientConfig to(const http::Server& server) {
  return {.base_url = server.url(), .call_seconds = 10, .retries = {.retries = 0}};
}

void echo(const Shared& exchange) {
  exchange->respond({.headers = {{"X", "y"}},
                     .body = exchange->request().method + " " + exchange->request().target + " " +
                             std::to_string(exchange->request().body.size())});
}

// Waits for `holds` for a few seconds.
template <class Holds>
bool soon(Holds holds) {
  for (int i = 0; i < 500 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

}  // namespace

TEST_CASE("requests are answered over one connection; large bodies both ways") {
  http::Server server({}, [](const Shared& exchange) {
    if (exchange->request().target == "/large")
      return exchange->respond({.body = std::string(std::size_t{20} << 20, 'x')});
    echo(exchange);
  });
  http::Client client(to(server));
  CHECK(client.call({.target = "/a?b"}).response().body == "GET /a?b 0");
  CHECK(
      client.call({.method = "PUT", .target = "/", .body = std::string(std::size_t{20} << 20, 'x')}).response().body ==
      "PUT / 20971520");
  CHECK(client.call({.target = "/large"}).response().body.size() == std::size_t{20} << 20);
  CHECK(server.connections() == 1);
}

TEST_CASE("an answer comes from another thread, in parts as they are made") {
  std::vector<std::thread> threads;
  http::Server server({}, [&](const Shared& exchange) {
    threads.emplace_back([exchange] {
      exchange->begin(200, {{"Content-Type", "text/event-stream"}});
      for (int i = 0; i < 3; ++i) {
        exchange->write(http::server_sent_event(std::to_string(i)));
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      }
      exchange->end();
    });
  });
  http::Client client(to(server));
  for (int round = 0; round < 2; ++round) {
    std::vector<std::string> parts;
    const http::Result result = client.call({}, {.on_body = [&](std::string_view part) { parts.emplace_back(part); }});
    REQUIRE(result.ok());
    CHECK(*http::find_header(result.response().headers, "content-type") == "text/event-stream");
    CHECK(parts == std::vector<std::string>{"data: 0\n\n", "data: 1\n\n", "data: 2\n\n"});
  }
  CHECK(server.connections() == 1);
  for (std::thread& one : threads) one.join();
}

TEST_CASE("what is written is on its way when write returns, whatever the server's own threads do") {
  std::mutex mutex;
  std::condition_variable changed;
  Shared streamed;
  bool busy = false, released = false;
  http::Server server({.threads = 1}, [&](const Shared& exchange) {
    std::unique_lock lock(mutex);
    if (exchange->request().target == "/stream") {
      exchange->begin(200, {});
      streamed = exchange;
    } else {
      busy = true;
      changed.notify_all();
      changed.wait(lock, [&] { return released; });
      exchange->respond({.body = "free"});
    }
    changed.notify_all();
  });
  RawClient reader(server.port()), other(server.port());
  const auto wait_for = [&](auto holds) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), holds);
  };
  reader.send("GET /stream HTTP/1.1\r\n\r\n");
  REQUIRE(wait_for([&] { return streamed != nullptr; }));
  other.send("GET /other HTTP/1.1\r\nConnection: close\r\n\r\n");
  CHECK(wait_for([&] { return busy; }));
  CHECK(streamed->write("first"));
  CHECK(streamed->write("second"));
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                    parts = "5\r\nfirst\r\n6\r\nsecond\r\n";
  CHECK(reader.receive(head.size() + parts.size()) == head + parts);  // the only thread is in the other handler
  {
    const std::lock_guard lock(mutex);
    released = true;
  }
  changed.notify_all();
  CHECK(other.receive_all().ends_with("free"));
  std::exchange(streamed, nullptr)->end();
  CHECK(reader.receive(5) == "0\r\n\r\n");
}

TEST_CASE("parts arrive in order and whole where the client reads slower than they are written") {
  Shared held;
  std::mutex mutex;
  std::condition_variable changed;
  http::Server server({.output_limit = std::size_t{64} << 20}, [&](const Shared& exchange) {
    const std::lock_guard lock(mutex);
    held = exchange;
    changed.notify_all();
  });
  RawClient client(server.port());
  client.send("GET / HTTP/1.0\r\n\r\n");  // no chunks: the body is what was written
  {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return held != nullptr; }));
  }
  held->begin(200, {});
  std::string expected;
  const auto write = [&](std::size_t size) {
    std::string part;
    while (part.size() < size) part += std::to_string(expected.size() + part.size()) + ",";
    expected += part;
    return held->write(part);
  };
  // Far more than a socket takes, in parts that are sent at once and parts that are not; the client reads beside it.
  std::string received;
  std::thread reading([&] { received = client.receive(std::size_t{64} << 20); });
  bool taken = true;
  for (int i = 0; i < 200; ++i)
    taken = write(i % 7 == 0 ? std::size_t{150} << 10 : 37 + static_cast<std::size_t>(i)) && taken;
  CHECK(taken);
  held->end();
  reading.join();
  const std::size_t body = received.find("\r\n\r\n");
  REQUIRE(body != std::string::npos);
  CHECK(received.substr(body + 4) == expected);
}

TEST_CASE("handlers that throw or forget to answer are status 500; what they threw is told") {
  std::mutex mutex;
  std::string told;
  http::Server server({.tell =
                           [&](const std::string& line) {
                             const std::lock_guard lock(mutex);
                             told = line;
                           }},
                      [](const Shared& exchange) {
                        if (exchange->request().target == "/throw") throw std::runtime_error("secret");
                        if (exchange->request().target == "/half") exchange->begin(200, {});
                      });
  http::Client client(to(server));
  const http::Result thrown = client.call({.target = "/throw"});
  CHECK(thrown.response().status == 500);
  CHECK(thrown.response().body.find("secret") == std::string::npos);
  CHECK(client.call({.target = "/forgets"}).response().status == 500);
  const http::Result half = client.call({.target = "/half"});
  REQUIRE_FALSE(half.answered());
  CHECK(half.failure().kind == http::Failure::Kind::broken);
  const std::lock_guard lock(mutex);
  CHECK(told == "/throw: secret");
}

TEST_CASE("what is too large, too slow or no HTTP is refused by its status") {
  http::Server server(
      {.header_limit = 1000, .body_limit = 1000, .idle_seconds = 5.0, .header_seconds = 0.2, .body_seconds = 0.2},
      echo);
  const auto answer = [&](const std::string& bytes) {
    RawClient client(server.port());
    client.send(bytes);
    return client.receive_all().substr(0, 12);
  };
  CHECK(answer("nonsense\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer("GET / HTTP/1.1\r\nA: " + std::string(2000, 'x')) == "HTTP/1.1 431");
  CHECK(answer("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n") == "HTTP/1.1 413");
  CHECK(answer("POST / HTTP/1.1\r\nContent-Length: 9000000000000000000\r\n\r\n{}") == "HTTP/1.1 413");
  CHECK(answer("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n" + std::string(2000, 'x')) ==
        "HTTP/1.1 413");
  CHECK(answer("GET / HTT") == "HTTP/1.1 408");
  CHECK(answer("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf") == "HTTP/1.1 408");
  RawClient drips(server.port());
  const os::Stopwatch watch;
  for (int i = 0; i < 100 && drips.send("x"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(drips.receive_all().substr(0, 12) == "HTTP/1.1 408");
  CHECK(watch.seconds() < 4.0);
  CHECK(soon([&] { return server.connections() == 0; }));
}

TEST_CASE("requests sent ahead are answered in turn; HTTP/1.0 and Connection: close end the connection") {
  http::Server server({}, echo);
  RawClient ahead(server.port());
  ahead.send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string all = ahead.receive_all();
  const std::size_t one = all.find("GET /1 0"), two = all.find("GET /2 0"), three = all.find("GET /3 0");
  CHECK(one < two);
  CHECK(two < three);
  CHECK(three != std::string::npos);
  RawClient old(server.port());
  old.send("GET / HTTP/1.0\r\n\r\n");
  CHECK(old.receive_all().ends_with("\r\n\r\nGET / 0"));
  RawClient waits(server.port());
  waits.send("POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  CHECK(waits.receive(25) == "HTTP/1.1 100 Continue\r\n\r\n");
  waits.send("hello");
  CHECK(waits.receive(12) == "HTTP/1.1 200");
}

TEST_CASE("a client that goes away is noticed, and one that does not read is cut off") {
  std::mutex mutex;
  std::condition_variable changed;
  Shared held;
  bool gone = false;
  http::Server server({.output_limit = std::size_t{4} << 20, .write_seconds = 0.2}, [&](const Shared& exchange) {
    exchange->on_gone([&] {
      const std::lock_guard lock(mutex);
      gone = true;
      changed.notify_all();
    });
    const std::lock_guard lock(mutex);
    held = exchange;
    changed.notify_all();
  });
  const auto request = [&](RawClient& client) {
    client.send("GET / HTTP/1.1\r\n\r\n");
    std::unique_lock lock(mutex);
    gone = false;
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(5), [&] { return held != nullptr; }));
    return std::exchange(held, nullptr);
  };
  const auto is_gone = [&] {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(5), [&] { return gone; });
  };
  {
    Shared exchange;
    {
      RawClient client(server.port());
      exchange = request(client);
      CHECK_FALSE(exchange->gone());
    }
    CHECK(is_gone());
    CHECK(exchange->gone());
    exchange->begin(200, {});
    CHECK_FALSE(exchange->write("x"));
    bool told = false;
    exchange->on_gone([&] { told = true; });
    CHECK(told);
  }
  {  // more than may pile up
    RawClient client(server.port());
    const Shared exchange = request(client);
    exchange->begin(200, {});
    const std::string part(std::size_t{1} << 20, 'x');
    int taken = 0;
    while (taken < 100 && exchange->write(part)) ++taken;
    CHECK(taken < 100);
    CHECK(is_gone());
  }
  {  // less than that, but not read in time
    RawClient client(server.port());
    const Shared exchange = request(client);
    exchange->respond({.body = std::string(std::size_t{64} << 20, 'x')});
    CHECK(is_gone());
  }
  CHECK(soon([&] { return server.connections() == 0; }));
}

TEST_CASE("idle connections are closed after a while, and make room for others before") {
  http::Server server({.connections = 3, .idle_seconds = 2.0, .header_seconds = 2.0}, echo);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    CHECK(soon([&] { return server.connections() == static_cast<std::size_t>(i) + 1; }));
  }
  clients[1]->send("GET / HT");  // a header that does not end
  for (int i = 0; i < 20; ++i) CHECK(http::Client(to(server)).call({}).ok());
  CHECK(clients[0]->receive_all().empty());
  CHECK(soon([&] { return server.connections() <= 3; }));
  CHECK(soon([&] { return server.connections() == 0; }));
}

TEST_CASE("where every connection has its request, the newest is closed") {
  std::mutex mutex;
  std::vector<Shared> waiting;
  http::Server server({.connections = 2}, [&](const Shared& exchange) {
    const std::lock_guard lock(mutex);
    waiting.push_back(exchange);
  });
  RawClient first(server.port()), second(server.port());
  first.send("GET / HTTP/1.1\r\n\r\n");
  second.send("GET / HTTP/1.1\r\n\r\n");
  CHECK(soon([&] {
    const std::lock_guard lock(mutex);
    return waiting.size() == 2;
  }));
  RawClient third(server.port());
  CHECK(third.receive_all().empty());
  const std::lock_guard lock(mutex);
  waiting.clear();
}

TEST_CASE("bodies of all connections together are bounded") {
  std::mutex mutex;
  std::vector<Shared> waiting;
  http::Server server({.bodies_limit = 1000}, [&](const Shared& exchange) {
    const std::lock_guard lock(mutex);
    waiting.push_back(exchange);
  });
  const auto held = [&](std::size_t count) {
    return soon([&] {
      const std::lock_guard lock(mutex);
      return waiting.size() == count;
    });
  };
  const std::string six = "POST / HTTP/1.1\r\nContent-Length: 600\r\n\r\n" + std::string(600, 'x');
  RawClient first(server.port()), second(server.port()), third(server.port());
  first.send(six);
  CHECK(held(1));
  second.send(six);
  CHECK(second.receive_all().substr(0, 12) == "HTTP/1.1 503");
  third.send("GET / HTTP/1.1\r\n\r\n");
  CHECK(held(2));
  {
    const std::lock_guard lock(mutex);
    for (const Shared& exchange : waiting) exchange->respond({.body = "done"});
    waiting.clear();
  }
  CHECK(first.receive(15) == "HTTP/1.1 200 OK");
  first.send(six);
  CHECK(held(1));  // the same connection again
  const std::lock_guard lock(mutex);
  waiting.clear();
}

TEST_CASE("a request is admitted or refused by its header, before its body is read") {
  std::atomic<int> handled = 0;
  http::Server server({.body_limit = std::size_t{1} << 30,
                       .admit =
                           [](const http::Request& head, std::optional<std::uint64_t> length) {
                             http::Admission out{.body_limit = 1000};
                             if (http::find_header(head.headers, "Key") == nullptr)
                               out.refusal = http::Response{.status = 401,
                                                            .body = "no key for " + head.method + " " + head.target};
                             else if (length.value_or(0) > out.body_limit)
                               out.refusal = http::Response{.status = 413};
                             return out;
                           }},
                      [&](const Shared& exchange) {
                        ++handled;
                        echo(exchange);
                      });
  const auto answer = [&](const std::string& bytes) {
    RawClient client(server.port());
    client.send(bytes);
    return client.receive_all();
  };
  const std::string large = "POST /a HTTP/1.1\r\nContent-Length: 300000000\r\n";
  CHECK(answer(large + "\r\n").find("no key for POST /a") != std::string::npos);
  CHECK(answer(large + "Expect: 100-continue\r\n\r\n").substr(0, 12) == "HTTP/1.1 401");
  CHECK(answer(large + "Key: k\r\n\r\n" + std::string(100000, 'x')).substr(0, 12) == "HTTP/1.1 413");
  CHECK(answer("POST / HTTP/1.1\r\nKey: k\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n" + std::string(4095, 'x'))
            .substr(0, 12) == "HTTP/1.1 413");
  CHECK(handled == 0);
  http::Client client(to(server));
  CHECK(client.call({.method = "POST", .target = "/", .headers = {{"Key", "k"}}, .body = "abc"}).response().body ==
        "POST / 3");
  CHECK(client.call({.target = "/x"}).response().status == 401);  // without a body the connection stays
  CHECK(client.call({.target = "/x", .headers = {{"Key", "k"}}}).response().body == "GET /x 0");
  CHECK(soon([&] { return server.connections() == 1; }));  // what was refused is closed by the server in its time
}

TEST_CASE("stop waits for answers under way, then closes the rest") {
  std::atomic<int> begun = 0;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<Shared> never;
  http::Server server({}, [&](const Shared& exchange) {
    const std::lock_guard lock(mutex);
    ++begun;
    if (exchange->request().target == "/never") return never.push_back(exchange);
    threads.emplace_back([exchange] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      echo(exchange);
    });
  });
  RawClient idle(server.port());
  http::Result slow = http::Failure{}, lost = http::Failure{};
  std::thread first([&] { slow = http::Client(to(server)).call({.target = "/slow"}); });
  std::thread second([&] { lost = http::Client(to(server)).call({.target = "/never"}); });
  CHECK(soon([&] { return begun == 2; }));
  const os::Stopwatch watch;
  server.stop(1.0);
  CHECK(watch.seconds() > 0.9);
  CHECK(watch.seconds() < 4.0);
  first.join();
  second.join();
  CHECK(slow.ok());
  REQUIRE_FALSE(lost.answered());
  CHECK(lost.failure().kind == http::Failure::Kind::broken);
  CHECK(idle.receive_all().empty());
  CHECK(never[0]->gone());
  never[0]->respond({});
  for (std::thread& one : threads) one.join();
  http::Client late(to(server));
  CHECK(late.call({}).failure().kind == http::Failure::Kind::unreachable);
  server.stop(1.0);
}

TEST_CASE("a server that has ended holds nothing, whatever its connections did at that moment") {
  const auto held = std::make_shared<int>(0);
  for (int i = 0; i < 20; ++i) {  // one moment in a few is that of a loop which ends while connections are told to
    std::vector<std::unique_ptr<RawClient>> clients;
    http::Server server({.threads = 2}, [held](const Shared& exchange) { echo(exchange); });
    for (int j = 0; j < 40; ++j) clients.push_back(std::make_unique<RawClient>(server.port()));
    CHECK(soon([&] { return server.connections() == clients.size(); }));
  }
  CHECK(soon([&] { return held.use_count() == 1; }));
}

TEST_CASE("many connections wait without threads of their own") {
  http::Server server({}, echo);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 400; ++i) clients.push_back(std::make_unique<RawClient>(server.port()));
  for (const auto& client : clients) client->send("GET / HTTP/1.1\r\n\r\n");
  int answered = 0;
  for (const auto& client : clients) answered += client->receive(12) == "HTTP/1.1 200" ? 1 : 0;
  CHECK(answered == 400);
  CHECK(server.connections() == 400);
}

TEST_CASE("a port that is taken, an address that is not ours") {
  http::Server server({}, echo);
  CHECK_THROWS_WITH(http::Server({.port = server.port()}, echo), Catch::Contains("[rlalgo.http.8]") &&
                                                                     Catch::Contains("Address already in use") &&
                                                                     Catch::Contains(std::to_string(server.port())));
  CHECK_THROWS_WITH(http::Server({.host = "no address"}, echo), Catch::Contains("[rlalgo.http.8]"));
  CHECK_THROWS_WITH(http::Server({.host = "192.0.2.1"}, echo), Catch::Contains("[rlalgo.http.8]"));
}
