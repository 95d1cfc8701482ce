#include <string>

#include <support/catch.hpp>

#include <rlalgo/core/exact_json.hpp>

using rlalgo::core::json_loss;

namespace {
std::string loss(const std::string& text) { return json_loss(text).text; }
}  // namespace

TEST_CASE("whole numbers that 64 bits hold are kept, others are named") {
  for (const char* kept : {"9223372036854775807", "18446744073709551615", "-9223372036854775808", "[1, 0, -1]", "0.1",
                           "123456789012345678901234567890.5", "1e300", "-12345678901234567890e-3", "", "null",
                           R"("12345678901234567890123")", R"({"12345678901234567890123": "98765432109876543210987"})"})
    CHECK(loss(kept) == "");
  CHECK(loss("18446744073709551616") == "a whole number that 64 bits do not hold: 18446744073709551616");
  CHECK(loss(R"({"a": [1, {"b": -9223372036854775809}]})").find("-9223372036854775809") != std::string::npos);
  CHECK(json_loss("[1, 99999999999999999999]").byte == 4);
  CHECK(loss(std::string(500, '9')).size() < 120);
}

TEST_CASE("a key is named that stands twice in one object, and only there") {
  CHECK(loss(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}], "d": "a"})") == "");
  CHECK(loss(R"({"a": "a", "b": "b,\"a\": ", "": 1})") == "");
  CHECK(loss(R"({"a": 1, "b": 2, "a": 3})") == "the key \"a\" twice in one object");
  CHECK(loss(R"([{"x": {"y": 1, "z": [], "y": null}}])") == "the key \"y\" twice in one object");
  CHECK(json_loss(R"({"a": 1, "a": 2})").byte >= 2);
  CHECK(loss(R"({"\"": 1, "\"": 2})").find("twice") != std::string::npos);
}

TEST_CASE("text that is no JSON ends nowhere bad") {
  for (const char* text : {"}", "]]", "{\"a", "\"\\", "{\"a\\\"", "-", "[,", "{{{\"a\":\"a\""})
    CHECK_NOTHROW(json_loss(text));
}
