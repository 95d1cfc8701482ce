#include <support/catch.hpp>

#include <rlalgo/core/groups.hpp>

using namespace rlalgo::core;

TEST_CASE("uniform groups cover all samples without gaps, the last one may be short") {
  const Groups groups = Groups::uniform(7, 3);
  REQUIRE(groups.count() == 3);
  CHECK(groups.size() == 7);
  std::size_t next = 0;
  for (const Span& span : groups) {
    CHECK(span.begin == next);
    next = span.end;
  }
  CHECK(next == 7);
  CHECK(groups.begin()[2].size() == 1);
}

TEST_CASE("no samples, no groups") {
  CHECK(Groups::uniform(0, 4).count() == 0);
  CHECK(Groups().size() == 0);
}
