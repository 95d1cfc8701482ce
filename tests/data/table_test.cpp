#include <support/scratch.hpp>

#include <rlalgo/data/table.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
Table table_of(const std::vector<std::string>& rows) {
  Table table;
  const auto file = std::make_shared<const std::string>("rows.jsonl");
  for (std::size_t i = 0; i < rows.size(); ++i)
    table.append(Json::parse(rows[i]), {file, static_cast<std::int64_t>(i) + 1, -1});
  return table;
}
}  // namespace

TEST_CASE("absent columns become null and the order of first appearance is kept") {
  Table table = table_of({R"({"a": 1})", R"({"b": "x"})", R"({"c": [1], "a": 2})"});
  table.unify_columns();
  CHECK(table.columns() == std::vector<std::string>{"a", "b", "c"});
  CHECK(table.row(0).dump() == R"({"a":1,"b":null,"c":null})");
  CHECK(table.row(1)["a"].is_null());
  CHECK(table.row(2)["b"].is_null());
}

TEST_CASE("a column of integers and floats becomes floats") {
  Table table = table_of({R"({"a": 1, "b": 1})", R"({"a": 2.5, "b": 2})"});
  table.unify_columns();
  CHECK(table.row(0)["a"].is_number_float());
  CHECK(table.row(0)["a"] == 1.0);
  CHECK(table.row(0)["b"].is_number_integer());
}

TEST_CASE("a column that mixes types names both rows") {
  Table table = table_of({R"({"answer": null})", R"({"answer": "18"})", R"({"answer": 18})"});
  const std::string error = raised_by([&] { table.unify_columns(); });
  CHECK(lacks(error, {"data.8: ", "\"answer\"", "a number at rows.jsonl:3", "a string as at rows.jsonl:2"}) == "");
}

TEST_CASE("selection and slices keep rows and origins together") {
  const Table table = table_of({R"({"a": 0})", R"({"a": 1})", R"({"a": 2})", R"({"a": 3})"});
  const Table picked = table.selected({3, 1});
  CHECK(picked.size() == 2);
  CHECK(picked.row(0)["a"] == 3);
  CHECK(picked.where(0) == "rows.jsonl:4");
  CHECK(table.slice(1, 3).row(1)["a"] == 2);
  Table both = table.slice(0, 1);
  both.append(picked);
  CHECK(both.size() == 3);
  CHECK(both.where(2) == "rows.jsonl:2");
  CHECK(Origin{std::make_shared<const std::string>("x.json"), 0, 7}.text() == "x.json[7]");
}
