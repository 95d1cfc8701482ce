#include <support/catch.hpp>

#include <rlalgo/config/asynchronous_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("a run is asynchronous where generation is ahead or in pieces") {
  AsynchronousConfig a;
  CHECK_FALSE(a.is_asynchronous());
  a.async_prefetch = true;
  CHECK(a.is_asynchronous());
  a.prefetch_depth = 0;
  CHECK_FALSE(a.is_asynchronous());
  a.streaming_partial_batch = true;
  CHECK(a.is_asynchronous());
  a.streaming_min_groups = 0;
  CHECK(a.groups_in_a_piece() == 1);
}

TEST_CASE("replay and rerolls need no thread, prefetching does") {
  AsynchronousConfig a;
  const auto idle = [&](std::string_view name) {
    for (const Key& row : asynchronous_keys(a))
      if (row.name == name) return !row.idle_because().empty();
    return false;
  };
  CHECK(idle("trl.replay_buffer_size"));
  a.use_data_producer = true;
  CHECK_FALSE(idle("trl.replay_buffer_size"));
  CHECK(idle("trl.replay_max_age"));
  CHECK(idle("trl.prefetch_depth"));
  a.replay_buffer_size = 2;
  CHECK_FALSE(idle("trl.replay_max_age"));
  a.async_prefetch = true;
  CHECK_FALSE(idle("trl.prefetch_depth"));
  CHECK(idle("trl.async_schedule_file"));
}
