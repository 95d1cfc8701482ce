#include <support/catch.hpp>

#include <rlalgo/data/shard.hpp>

using namespace rlalgo::data;

TEST_CASE("shards are those of datasets' shuffle(seed=42).shard(num_shards, index)") {
  // datasets 5.2: Dataset.from_dict({"i": range(10)}).shuffle(seed=42).shard(num_shards=3, index=k)["i"]
  using Rows = std::vector<std::size_t>;
  CHECK(rows_of_shard(10, {3, 0}, 42) == Rows{5, 6, 0, 7});
  CHECK(rows_of_shard(10, {3, 1}, 42) == Rows{3, 2, 4});
  CHECK(rows_of_shard(10, {3, 2}, 42) == Rows{9, 1, 8});
  CHECK(rows_of_shard(3, {1, 0}, 42).size() == 3);
  CHECK_THROWS_WITH(rows_of_shard(2, {3, 2}, 42, "c.yaml:4"),
                    Catch::StartsWith("[rlalgo.data.5]") && Catch::Contains("c.yaml:4"));
  CHECK(Shard().whole());
}
