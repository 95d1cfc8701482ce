#include <rlalgo/http/message.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("headers are found whatever the case of their names, the first of several") {
  const http::Headers headers = {{"Content-Type", "a"}, {"content-type", "b"}, {"X", ""}};
  REQUIRE(http::find_header(headers, "CONTENT-TYPE") != nullptr);
  CHECK(*http::find_header(headers, "CONTENT-TYPE") == "a");
  CHECK(http::find_header(headers, "x")->empty());
  CHECK(http::find_header(headers, "Content") == nullptr);
  CHECK_FALSE(http::same_name("a", "ab"));
}

TEST_CASE("2xx is ok; an event is a line and a blank one") {
  CHECK(http::Response{.status = 204}.ok());
  CHECK_FALSE(http::Response{.status = 199}.ok());
  CHECK_FALSE(http::Response{.status = 302}.ok());
  CHECK(http::server_sent_event("{}") == "data: {}\n\n");
}
