#include <rlalgo/sync/first_rank_sync.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using sync::FirstRankSync;

TEST_CASE("a rank that hands nothing over notes the version, which is that of its server's weights") {
  FirstRankSync policy;
  const auto version = policy.version_source();
  CHECK(version() == -1);
  const sync::Published published = policy.publish(7);
  CHECK(published.version == 7);
  CHECK(published.status == sync::Published::Status::unchanged);
  CHECK(published.bytes == 0);
  CHECK(version() == 7);
  FirstRankSync copy = policy;  // copies share it, as those of other policies do
  (void)copy.publish(8);
  CHECK(version() == 8);
}

TEST_CASE("it serves a generator that asks a server, and no other") {
  CHECK(FirstRankSync::reaches(inference::WeightSource::remote));
  CHECK_FALSE(FirstRankSync::reaches(inference::WeightSource::shared));
  CHECK_FALSE(FirstRankSync::reaches(inference::WeightSource::snapshot));
}
