#include <support/catch.hpp>

#include <rlalgo/core/nearest.hpp>

using rlalgo::core::edit_distance;
using rlalgo::core::nearest_name;

TEST_CASE("edit distance counts insertions, deletions, substitutions and swaps") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "abd") == 1);
  CHECK(edit_distance("lenght", "length") == 1);  // a swap of neighbours is one edit
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);  // optimal string alignment: no edit inside a swapped pair
}

TEST_CASE("the nearest name is offered only when it is near") {
  const std::vector<std::string> names = {"learning_rate", "lr_scheduler", "logging_steps", "beta"};
  CHECK(nearest_name("learning_rat", names) == "learning_rate");
  CHECK(nearest_name("Learning-Rate", names) == "learning_rate");
  CHECK(nearest_name("loging_step", names) == "logging_steps");
  CHECK(nearest_name("bta", names) == "beta");
  CHECK(nearest_name("wandb_project", names).empty());
  CHECK(nearest_name("x", names).empty());
  CHECK(nearest_name("learning", names) == "learning_rate");  // a beginning of four letters or more
  CHECK(nearest_name("lr", names).empty());
  CHECK(nearest_name("beta", {}).empty());
}

TEST_CASE("a name of a megabyte is near to nothing, at once") {
  CHECK(nearest_name(std::string(1000000, 'x'), {"learning_rate", "x"}).empty());
}
