#include <support/catch.hpp>

#include <rlalgo/inference/scheduler.hpp>
#include <rlalgo/inference/scheduler_config.hpp>

#include "inference/toy_forward.hpp"

using namespace rlalgo;

TEST_CASE("the memory is whole pages, at least one; nothing said, what running requests need") {
  const model::DecoderConfig config = toy::config();
  os::ThreadPool pool(1);
  const auto pages = [&](std::size_t bytes) {
    inference::KvCache cache(1, 1, 8);
    toy::ToyForward forward(cache, 288, 32);
    const inference::Scheduler scheduler(config, forward, cache, pool, {.cache_bytes = bytes});
    return cache.limit();
  };
  const std::size_t page = inference::KvCache(1, 1, 8).page_bytes();
  CHECK(pages(0) == 0);
  CHECK(pages(1) == 1);
  CHECK(pages(3 * page - 1) == 2);
  CHECK(pages(3 * page) == 3);
}
