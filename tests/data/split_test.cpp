#include <support/scratch.hpp>

#include <rlalgo/data/split.hpp>

using namespace rlalgo::data;
using rlalgo::support::exit_code_of;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
Table numbers(int from, int to) {
  Table table;
  for (int i = from; i < to; ++i) table.append(Json{{"n", i}}, {});
  return table;
}
std::vector<int> values(const Table& table) {
  std::vector<int> out;
  for (const Json& row : table.rows()) out.push_back(row["n"].get<int>());
  return out;
}
}  // namespace

TEST_CASE("one table is shuffled by NumPy's permutation of the seed") {
  CHECK(values(merge({numbers(0, 16)}, {.seed = 0})) ==
        std::vector<int>{2, 11, 3, 10, 0, 4, 7, 5, 14, 12, 6, 9, 13, 8, 1, 15});
  CHECK(values(merge({numbers(0, 4)}, {.seed = 0, .shuffle = false})) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("several tables are joined in order, each shuffled first only when asked") {
  CHECK(values(merge({numbers(0, 2), numbers(5, 7)}, {.seed = 3, .shuffle = false})) == std::vector<int>{0, 1, 5, 6});
  CHECK(values(merge({numbers(0, 2), numbers(5, 7)}, {.seed = 3, .shuffle = false, .shuffle_before = true})) ==
        std::vector<int>{1, 0, 6, 5});
  CHECK(values(merge({numbers(0, 2)}, {.seed = 3, .shuffle = false, .shuffle_before = true})) ==
        std::vector<int>{0, 1});
  Table other;
  other.append(Json{{"m", "x"}}, {});
  CHECK(merge({numbers(0, 1), other}, {.shuffle = false}).row(0).dump() == R"({"n":0,"m":null})");
}

TEST_CASE("the first of equal rows stays, whatever the order of their keys") {
  Table table;
  table.append(Json::parse(R"({"a": 1, "b": 2})"), {});
  table.append(Json::parse(R"({"b": 2, "a": 1})"), {});
  table.append(Json::parse(R"({"a": 1, "b": 3})"), {});
  const Table unique = deduplicated(table);
  REQUIRE(unique.size() == 2);
  CHECK(unique.row(1)["b"] == 3);
  CHECK(values(deduplicated_against(numbers(0, 3), numbers(1, 6))) == std::vector<int>{3, 4, 5});
}

TEST_CASE("the last ⌈f·n⌉ rows are held out") {
  const HeldOut held = hold_out(numbers(0, 10), 0.25);
  CHECK(values(held.train) == std::vector<int>{0, 1, 2, 3, 4, 5, 6});
  CHECK(values(held.evaluation) == std::vector<int>{7, 8, 9});
  CHECK(hold_out(numbers(0, 10), 0.1).evaluation.size() == 1);
  CHECK(hold_out(numbers(0, 100), 0.0001).evaluation.size() == 1);
}

TEST_CASE("a fraction that is none, and one that leaves nothing") {
  for (const double bad : {0.0, 1.0, -0.1, 100.0, std::nan("")}) {
    INFO(bad);
    CHECK(lacks(raised_by([&] { (void)hold_out(numbers(0, 10), bad); }), {"data.13: "}) == "");
    CHECK(exit_code_of([&] { (void)hold_out(numbers(0, 10), bad); }) == 2);
  }
  CHECK(lacks(raised_by([] { (void)hold_out(numbers(0, 1), 0.5); }), {"data.13: ", "no row to train on"}) == "");
}
