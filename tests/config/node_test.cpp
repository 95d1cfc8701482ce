#include <support/catch.hpp>

#include <rlalgo/config/node.hpp>

using namespace rlalgo::config;

namespace {
Node plain(const std::string& text) { return make_scalar(text, false, {}); }
}  // namespace

TEST_CASE("scalars are typed as PyYAML types them") {
  for (const char* text : {"yes", "Yes", "YES", "on", "true", "True"})
    CHECK((plain(text).kind == Kind::boolean && plain(text).boolean));
  for (const char* text : {"no", "No", "OFF", "off", "false"})
    CHECK((plain(text).kind == Kind::boolean && !plain(text).boolean));
  for (const char* text : {"", "~", "null", "Null", "NULL"}) CHECK(plain(text).kind == Kind::null);
  for (const char* text : {"y", "n", "yEs", "nuLL", "tRue", "1.2.3", "1-2", "a b", "0x", "08", ".", "-", "+", "e5",
                           "1e", "inf", "nan", "1:30"}) {
    INFO(text);
    CHECK(plain(text).kind == Kind::string);
  }
  CHECK(plain("1_000").integer == 1000);
  CHECK(plain("012").integer == 10);
  CHECK(plain("0x1F").integer == 31);
  CHECK(plain("0b101").integer == 5);
  CHECK(plain("-3").integer == -3);
  CHECK(plain("+7").integer == 7);
  CHECK(plain("0").integer == 0);
  for (const char* large : {"9223372036854775808", "99999999999999999999999"}) CHECK(plain(large).kind == Kind::number);
  CHECK(plain("-1_000_000_000_000_000_000_000").number == -1e21);
  CHECK(plain("1e400").number == std::numeric_limits<double>::infinity());
  CHECK(plain("-1e400").number == -std::numeric_limits<double>::infinity());
  CHECK(plain("1e-400").number == 0.0);
  CHECK(plain("1e-400").kind == Kind::number);
  CHECK(plain("1.").number == 1.0);
  CHECK(plain(".5").number == 0.5);
  CHECK(plain("-1.5E+3").number == -1500.0);
  CHECK(plain(".inf").number == std::numeric_limits<double>::infinity());
  CHECK(plain("-.inf").number == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(plain(".nan").number));
}

TEST_CASE("1e-5 is a number and keeps its spelling") {
  const Node node = plain("1e-5");
  CHECK(node.kind == Kind::number);
  CHECK(node.number == 1e-5);
  CHECK(node.text == "1e-5");
}

TEST_CASE("a quoted scalar is a text") {
  CHECK(make_scalar("no", true, {}).kind == Kind::string);
  CHECK(make_scalar("", true, {}).kind == Kind::string);
}

TEST_CASE("places name the line or the option") {
  CHECK(Place{.file = "c.yaml", .line = 3, .column = 7}.text() == "c.yaml:3");
  CHECK(Place{.file = "c.yaml"}.text() == "c.yaml");
  CHECK(Place{.option = "--trl.beta"}.text() == "command line --trl.beta");
}

TEST_CASE("members are found by name, and a tree becomes JSON") {
  Node map;
  map.kind = Kind::mapping;
  map.members.push_back({"a", {}, plain("1")});
  map.members.push_back({"b", {}, plain("x")});
  Node list;
  list.kind = Kind::sequence;
  list.items = {plain("yes"), plain("~"), plain("0.5")};
  map.members.push_back({"c", {}, list});
  CHECK(map.find("b")->text == "x");
  CHECK(map.find("d") == nullptr);
  CHECK(to_json(map).dump() == R"({"a":1,"b":"x","c":[true,null,0.5]})");
  CHECK(describe(map) == "a mapping");
  CHECK(describe(list) == "a list of 3");
  CHECK(describe(plain("8")) == "the integer 8");
}
