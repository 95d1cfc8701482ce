#include <rlalgo/serve/histogram.hpp>

#include <support/catch.hpp>

using rlalgo::serve::Histogram;

TEST_CASE("a histogram counts values up to each bound, and those above in total") {
  Histogram h({1.0, 2.0, 4.0});
  for (const double value : {0.5, 1.0, 1.5, 4.0, 9.0}) h.add(value);
  CHECK(h.up_to(0) == 2);  // a bound belongs to its band
  CHECK(h.up_to(1) == 3);
  CHECK(h.up_to(2) == 4);
  CHECK(h.total() == 5);
  CHECK(h.sum() == 16.0);
}
