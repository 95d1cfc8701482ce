#include <rlalgo/http/result.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a result is a response of any status, or a failure that says what was waited for") {
  const http::Result refused = http::Response{.status = 404, .body = "no"};
  CHECK(refused.answered());
  CHECK_FALSE(refused.ok());
  CHECK(refused.text() == "HTTP 404");
  CHECK(refused.response().body == "no");
  const http::Result failed = http::Failure{http::Failure::Kind::timeout, "an answer", "time is up"};
  CHECK_FALSE(failed.answered());
  CHECK_FALSE(failed.ok());
  CHECK(failed.text() == "time is up, waiting for an answer");
}
