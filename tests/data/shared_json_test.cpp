#include <rlalgo/data/shared_json.hpp>

#include <support/catch.hpp>

using nlohmann::ordered_json;
using rlalgo::data::SharedJson;

TEST_CASE("copies of a shared value are the same object") {
  const SharedJson prompt = ordered_json::parse(R"([{"role":"user","content":"2+2?"}])");
  const SharedJson copy = prompt;
  CHECK(&*copy == &*prompt);
  CHECK(copy->at(0)["content"] == "2+2?");
  const ordered_json& read = copy;
  CHECK(&read == &*prompt);
}

TEST_CASE("a shared value is null at first, and equal to what holds the same") {
  SharedJson prompt;
  CHECK(prompt->is_null());
  CHECK(prompt == SharedJson());
  prompt = "2+2?";
  CHECK(*prompt == "2+2?");
  CHECK(prompt == SharedJson(ordered_json("2+2?")));
  CHECK_FALSE(prompt == SharedJson("3+3?"));
}
