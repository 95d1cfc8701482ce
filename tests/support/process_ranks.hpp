// Ranks that are threads of the test, each with the World that processes have (distributed/process_world.hpp): over Gloo.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <vector>

#include <rlalgo/distributed/process_world.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

namespace rlalgo::support {

// Runs `body(world)` on so many ranks; the caller has the store. Without Gloo the test case is not run.
inline void with_ranks(int ranks, const std::function<void(const std::shared_ptr<distributed::World>&)>& body,
                       double seconds = 20.0) {
  needs(distributed::gloo_built(), without_gloo);
  const distributed::Store store = distributed::Store::listen("127.0.0.1", 0);
  std::vector<std::future<void>> all;
  for (int r = 0; r < ranks; ++r)
    all.push_back(std::async(std::launch::async, [&, r] {
      const auto world = distributed::join_world(
          {.rank = r, .size = ranks, .host = "127.0.0.1", .port = store.port(), .hosted = true}, seconds);
      try {
        body(world);
      } catch (const std::exception& error) {
        world->fail(error.what());
        throw;
      }
    }));
  for (auto& one : all) one.get();
  SUCCEED("every RANK_CHECK holds");
}

}  // namespace rlalgo::support
