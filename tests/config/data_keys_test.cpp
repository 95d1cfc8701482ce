#include <support/scratch.hpp>

#include <rlalgo/config/data_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("defaults of the data are axolotl's") {
  const DataConfig d;
  CHECK(d.val_set_size == 0.0);
  CHECK(d.shuffle_merged_datasets);
  CHECK_FALSE(d.shuffle_before_merging_datasets);
  CHECK(d.seed == 42);
  CHECK(d.excess_prompts == "raise");
}

TEST_CASE("a seed is no negative number") {
  DataConfig d;
  for (const Key& row : data_keys(d)) {
    if (row.name != "seed") continue;
    row.reader(make_scalar("7", false, {}));
    CHECK(d.seed == 7);
    CHECK(rlalgo::support::lacks(rlalgo::support::raised_by([&] { row.reader(make_scalar("-1", false, {})); }),
                                 {"config.6", "seed", "0 or more"}) == "");
  }
}
