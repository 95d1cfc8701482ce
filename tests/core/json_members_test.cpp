#include <support/catch.hpp>

#include <string>

#include <nlohmann/json.hpp>

#include <rlalgo/core/json_members.hpp>

using Json = nlohmann::ordered_json;
using namespace rlalgo::core;

TEST_CASE("a member is read as what it is, and as nothing where it is something else or absent") {
  const Json value = {{"text", "a"}, {"list", {1, 2}}, {"object", {{"b", 1}}}, {"null", nullptr}, {"number", 3}};
  CHECK(member(value, "number") == 3);
  CHECK(member(value, "absent").is_null());
  CHECK(text_member(value, "text") == "a");
  CHECK(text_member(value, "text", "else") == "a");
  CHECK(list_member(value, "list") == Json({1, 2}));
  CHECK(object_member(value, "object") == Json{{"b", 1}});
  for (const char* key : {"null", "number", "absent"}) {
    INFO(key);
    CHECK(text_member(value, key).empty());
    CHECK(text_member(value, key, "else") == "else");
    CHECK(list_member(value, key) == Json::array());
    CHECK(object_member(value, key) == Json::object());
  }
}

TEST_CASE("what is no object has no members") {
  for (const Json& value : {Json(), Json("text"), Json::array({"a"}), Json(1.5)}) {
    INFO(value.dump());
    CHECK(member(value, "a").is_null());
    CHECK(text_member(value, "a", "else") == "else");
  }
}
