#include <rlalgo/http/reply_message.hpp>

#include <string>

#include <nlohmann/json.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using Json = nlohmann::ordered_json;

TEST_CASE("the forms of a failure's reply") {
  CHECK(http::reply_message(R"({"error": {"message": "m", "code": 400}})") == "m");
  CHECK(http::reply_message(R"({"object": "error", "message": "m"})") == "m");
  CHECK(http::reply_message(R"({"detail": "m"})") == "m");
  CHECK(http::reply_message(R"({"detail": [{"loc": ["body", "a", 0], "msg": "m"}, {"msg": "n"}]})") ==
        "body.a.0: m; n");
  CHECK(http::reply_message(R"({"error": "m"})") == "m");
  CHECK(http::reply_message("Internal Server Error") == "Internal Server Error");
  CHECK(http::reply_message(R"({"status": 3})") == R"({"status": 3})");
  CHECK(http::reply_message("") == "");
  CHECK(http::reply_message("{") == "{");
}

TEST_CASE("a reply within a reply, as JSON and as Python shows it") {
  const std::string innermost = "This model's maximum context length is 512 tokens; \"x\" has 600";
  const std::string reply = Json{{"error", {{"message", innermost}, {"code", "context_length_exceeded"}}}}.dump();
  const std::string twice = Json{{"detail", "400 from http://model: " + reply}}.dump();
  CHECK(http::reply_message(twice) == innermost);
  CHECK(http::reply_message(Json{{"detail", "agent failed: " + twice}}.dump()) == innermost);
  CHECK(http::reply_message("500, message='Bad Request', body=b'" + reply + "'") == innermost);
  CHECK(http::reply_message(
            Json{{"detail", "Hit an exception: {'error': {'message': 'too long', 'code': 400}}"}}.dump()) ==
        "too long");
  CHECK(http::reply_message(R"(x {"error": {\"message\": \"a b\", \"code\": 1}} y)") == "a b");
}
