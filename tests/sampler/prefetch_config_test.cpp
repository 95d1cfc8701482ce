#include <rlalgo/sampler/prefetch_config.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("prefetch: by default one generation ahead, without a limit of staleness, and nothing is streamed") {
  const sampler::PrefetchConfig config;
  CHECK(config.depth == 1);
  CHECK(config.sync_interval == 1);
  CHECK(config.max_staleness < 0);
  CHECK(config.stream_groups == 0);
  CHECK(config.stall_seconds == 0.0);
  CHECK(config.world == nullptr);
  CHECK(config.mutex != config.scoring_mutex);
  CHECK_FALSE(config.stop.stop_requested());
}

TEST_CASE("prefetch: copies of the settings share their mutexes and their stop, settings made apart do not") {
  const sampler::PrefetchConfig one, copy = one, other;  // NOLINT(performance-unnecessary-copy-initialization)
  CHECK(copy.mutex == one.mutex);
  CHECK(other.mutex != one.mutex);
  std::stop_source stop = copy.stop;
  stop.request_stop();
  CHECK(one.stop.stop_requested());
  CHECK_FALSE(other.stop.stop_requested());
}
