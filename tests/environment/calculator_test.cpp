#include <cmath>
#include <stdexcept>
#include <string>

#include <support/catch.hpp>

#include <rlalgo/environment/calculator.hpp>

using rlalgo::environment::calculate;
using rlalgo::environment::calculator;
using Json = nlohmann::ordered_json;

TEST_CASE("arithmetic has the usual precedence") {
  CHECK(calculate("2 + 3 * 4") == 14);
  CHECK(calculate("(2 + 3) * 4") == 20);
  CHECK(calculate("2 - 3 - 4") == -5);
  CHECK(calculate("100 / 10 / 5") == 2);
  CHECK(calculate("-2 ** 2") == -4);
  CHECK(calculate("2 ** 3 ** 2") == 512);
  CHECK(calculate("2 ^ -1") == 0.5);
  CHECK(calculate("2*-3") == -6);
  CHECK(calculate("-7 % 3") == 2);
  CHECK(calculate("7 % -3") == -2);
  CHECK(calculate("1,234,567 + 1") == 1234568);
  CHECK(calculate(".5 + 1.") == 1.5);
  CHECK(calculate("--3") == 3);
  CHECK(calculate(" ( 1 ) ") == 1);
}

TEST_CASE("what is no arithmetic is refused with its place") {
  for (const std::string bad :
       {"", "2 +", "(2", "2)", "two", "1,23", "1.2.3", "2 ** ", "import os", "2 2", "1/0", "5 % 0", "10 ** 400", "."}) {
    INFO(bad);
    CHECK_THROWS_AS(calculate(bad), std::invalid_argument);
  }
  CHECK_THROWS_WITH(calculate("2 + x"), Catch::Matchers::Contains("position 4"));
  CHECK_THROWS_WITH(calculate(std::string(100000, '(')), Catch::Matchers::Contains("nested"));
  CHECK_THROWS_WITH(calculate(std::string(100000, '-')), Catch::Matchers::Contains("nested"));
}

TEST_CASE("the tool takes its expression by name and prints numbers as a person would") {
  const auto tool = calculator();
  CHECK(tool.schema["parameters"]["required"] == Json::array({"expression"}));
  CHECK(tool.schema["parameters"]["properties"]["expression"]["type"] == "string");
  CHECK(tool.run(Json{{"expression", "0.1 + 0.2"}}) == "0.3");
  CHECK(tool.run(Json{{"expression", "12 * 12"}}) == "144");
  CHECK(tool.run(Json{{"expression", "0 * -1"}}) == "0");
  CHECK(tool.run(Json{{"expression", "1/3"}}) == "0.333333333333333");
  CHECK_THROWS_AS(tool.run(Json::object()), std::invalid_argument);
  CHECK_THROWS_AS(tool.run(Json{{"expression", 3}}), std::invalid_argument);
}
