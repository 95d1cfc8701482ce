#include <rlalgo/run/step.hpp>

#include <cstdlib>
#include <limits>

#include <support/catch.hpp>

using namespace rlalgo::run;

TEST_CASE("a number prints as the shortest decimal that reads back equal, and always as a real number") {
  CHECK(format_number(0.1) == "0.1");
  CHECK(format_number(2.0) == "2.0");
  CHECK(format_number(-0.0) == "-0.0");
  CHECK(format_number(1e-6) == "1e-06");
  CHECK(format_number(0.1 + 0.2) == "0.30000000000000004");
  CHECK(format_number(12345678.0) == "12345678.0");
  CHECK(format_number(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(format_number(-std::numeric_limits<double>::infinity()) == "null");
  for (const double value : {1.0 / 3.0, 5e-324, 1.7976931348623157e308, 6.02214076e23})
    CHECK(std::strtod(format_number(value).c_str(), nullptr) == value);
}

TEST_CASE("a record survives its line") {
  const Record record{7, 0.25, {{"loss", 1.0 / 3.0}, {"rewards/a \"b\"/mean", no_value}, {"time/step", 2.0}}};
  const std::string line = to_line(record);
  CHECK(line ==
        R"({"step": 7, "epoch": 0.25, "loss": 0.3333333333333333, "rewards/a \"b\"/mean": null, "time/step": 2.0})");
  CHECK(to_line(to_record(Json::parse(line))) == line);
  CHECK(record.value("time/step") == 2.0);
  CHECK(std::isnan(record.value("absent")));
}
