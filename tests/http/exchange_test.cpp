#include <rlalgo/http/exchange.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

struct Wire final : http::detail::AnswerPath {
  std::string bytes;
  bool last = false, close = false, is_gone = false;
  bool send(std::string more, bool is_last, bool closes) override {
    bytes += more;
    last = last || is_last;
    close = close || closes;
    return !is_gone;
  }
  void on_gone(std::function<void()> call) override { call(); }
  [[nodiscard]] bool gone() const override { return is_gone; }
};

}  // namespace

TEST_CASE("a whole answer, once; headers cannot be broken out of") {
  const auto wire = std::make_shared<Wire>();
  http::Exchange exchange({}, wire, true, false);
  exchange.respond({.status = 404, .headers = {{"A", "b\r\nc"}}, .body = "no"});
  exchange.respond({.body = "again"});
  exchange.begin(200, {});
  CHECK_FALSE(exchange.write("x"));
  exchange.end();
  CHECK(wire->bytes == "HTTP/1.1 404 Not Found\r\nA: b  c\r\nContent-Length: 2\r\n\r\nno");
  CHECK(wire->last);
  CHECK_FALSE(wire->close);
}

TEST_CASE("the status is told when an answer is complete, or has broken off") {
  std::vector<int> told;
  const auto answer = [&](const auto& act) {
    http::Exchange exchange({}, std::make_shared<Wire>(), true, false);
    exchange.when_answered([&](int status) { told.push_back(status); });
    act(exchange);
  };
  answer([](http::Exchange& e) {
    e.respond({.status = 404});
    e.respond({.status = 200});
  });
  answer([&](http::Exchange& e) {
    e.begin(200, {});
    e.write("x");
    CHECK(told.size() == 1);
    e.end();
    CHECK(told.size() == 2);
  });
  answer([](http::Exchange& e) { e.begin(206, {}); });
  answer([](http::Exchange&) {});
  CHECK(told == std::vector<int>{404, 200, 206, 500});
}

TEST_CASE("statuses have their standard phrases") {
  const std::pair<int, const char*> phrases[] = {{401, "Unauthorized"},    {403, "Forbidden"},
                                                 {409, "Conflict"},        {429, "Too Many Requests"},
                                                 {504, "Gateway Timeout"}, {599, "Status"}};
  for (const auto& [status, phrase] : phrases) CHECK(http::detail::reason_of(status) == std::string(phrase));
}

TEST_CASE("a streamed answer in chunks, or to the end of the connection for HTTP/1.0") {
  const auto wire = std::make_shared<Wire>();
  {
    http::Exchange exchange({}, wire, true, false);
    exchange.begin(200, {{"Content-Type", "text/event-stream"}});
    CHECK(exchange.write("hello"));
    CHECK(exchange.write(""));
    CHECK(exchange.write(std::string(17, 'x')));
    CHECK_FALSE(wire->last);
    exchange.end();
  }
  CHECK(wire->bytes ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        "5\r\nhello\r\n11\r\nxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
  CHECK_FALSE(wire->close);
  const auto old = std::make_shared<Wire>();
  http::Exchange exchange({}, old, false, true);
  exchange.begin(200, {});
  exchange.write("hello");
  exchange.end();
  CHECK(old->bytes == "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
  CHECK(old->close);
}

TEST_CASE("HEAD has no body; dropped exchanges are answered or broken off; who is gone is told") {
  const auto head = std::make_shared<Wire>();
  http::Exchange({.method = "HEAD"}, head, false, false).respond({.body = "hello"});
  CHECK(head->bytes == "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n");
  CHECK(head->close);
  const auto dropped = std::make_shared<Wire>();
  { const http::Exchange exchange({}, dropped, true, false); }
  CHECK(dropped->bytes.starts_with("HTTP/1.1 500 "));
  const auto broken = std::make_shared<Wire>();
  { http::Exchange({}, broken, true, false).begin(200, {}); }
  CHECK(broken->close);
  CHECK(broken->bytes.find("0\r\n\r\n") == std::string::npos);
  broken->is_gone = true;
  http::Exchange exchange({}, broken, true, false);
  exchange.begin(200, {});
  CHECK_FALSE(exchange.write("x"));
  CHECK(exchange.gone());
  bool told = false;
  exchange.on_gone([&] { told = true; });
  CHECK(told);
}
