#include <rlalgo/distributed/stateless_group.hpp>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/pickle.hpp>
#include <rlalgo/os/clock.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

using namespace rlalgo;
using distributed::StatelessGroup;
using distributed::Store;

namespace {

constexpr double seconds = 20.0;

template <class F>
std::string said(const F& act) {
  try {
    act();
  } catch (const core::Error& error) {
    return error.room() + "." + std::to_string(error.number());
  }
  return {};
}

}  // namespace

TEST_CASE("objects of each source come in its order, under vLLM's names") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store store = Store::listen("127.0.0.1", 0);
  const Store other = Store::connect("127.0.0.1", store.port(), 2, seconds);
  StatelessGroup first(store, 0, 2), second(other, 1, 2);
  CHECK(first.broadcast("a", 0, seconds) == "a");
  CHECK(first.broadcast("b", 0, seconds) == "b");
  CHECK(second.broadcast("x", 1, seconds) == "x");
  CHECK(store.get("broadcast_from/0/0") == "a");
  CHECK(store.get("broadcast_from/1/0") == "x");
  CHECK(second.broadcast({}, 0, seconds) == "a");
  CHECK(second.broadcast({}, 0, seconds) == "b");
  CHECK(first.broadcast({}, 1, seconds) == "x");
}

TEST_CASE("nobody leaves a barrier before all have come, and it leaves no key of its own") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store store = Store::listen("127.0.0.1", 0);
  std::vector<StatelessGroup> ranks;
  ranks.emplace_back(store, 0, 3);
  for (int rank = 1; rank < 3; ++rank)
    ranks.emplace_back(Store::connect("127.0.0.1", store.port(), 3, seconds), rank, 3);
  for (int round = 0; round < 3; ++round) {
    const int late = round;
    std::vector<std::future<void>> waiting;
    for (int rank = 0; rank < 3; ++rank)
      if (rank != late) waiting.push_back(std::async(std::launch::async, [&, rank] { ranks[rank].barrier(seconds); }));
    for (auto& one : waiting) CHECK(one.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    ranks[late].barrier(seconds);
    for (auto& one : waiting) one.get();
    const std::string id = *distributed::text_in(store.get("broadcast_from/0/" + std::to_string(round)));
    CHECK(id.size() == 8 + 36);
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(!store.has("arrival_" + id + "_" + std::to_string(rank)));
      CHECK(!store.has("departure_" + id + "_" + std::to_string(rank)));
    }
  }
}

// Its barrier: `for i in range(size): broadcast_obj(None, src=i)`.
TEST_CASE("the barrier of older vLLM is told apart, whichever end is ours") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store store = Store::listen("127.0.0.1", 0);
  const Store other = Store::connect("127.0.0.1", store.port(), 2, seconds);
  SECTION("their rank 0") {
    StatelessGroup ours(other, 1, 2);
    for (int round = 0; round < 2; ++round) {
      const std::string i = std::to_string(round);
      auto waiting = std::async(std::launch::async, [&] { ours.barrier(seconds); });
      CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
      store.set("broadcast_from/0/" + i, distributed::pickled_none());
      waiting.get();
      CHECK(store.get("broadcast_from/1/" + i) == distributed::pickled_none());
    }
  }
  SECTION("their rank 1") {
    StatelessGroup ours(store, 0, 2);
    for (int round = 0; round < 2; ++round) {
      const std::string i = std::to_string(round);
      auto waiting = std::async(std::launch::async, [&] { ours.barrier(seconds); });
      CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
      CHECK(other.has("broadcast_from/0/" + i));
      other.set("broadcast_from/1/" + i, distributed::pickled_none());
      waiting.get();
    }
  }
}

TEST_CASE("every wait ends: at its deadline, when it is given up, and where nonsense is found") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store store = Store::listen("127.0.0.1", 0);
  StatelessGroup late(Store::connect("127.0.0.1", store.port(), 2, seconds), 1, 2);
  const os::Stopwatch watch;
  CHECK(said([&] { late.barrier(0.2); }) == "distributed.4");
  CHECK(said([&] { (void)late.broadcast({}, 0, 0.2); }) == "distributed.4");
  StatelessGroup first(store, 0, 2);
  CHECK(said([&] { first.barrier(0.2); }) == "distributed.4");
  CHECK(watch.seconds() < 5);
  auto waiting = std::async(std::launch::async, [&] { return said([&] { (void)first.broadcast({}, 1, seconds); }); });
  CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  first.stop();
  CHECK(waiting.get() == "distributed.4");
  CHECK(watch.seconds() < 8);

  const Store damaged = Store::listen("127.0.0.1", 0);
  damaged.set("broadcast_from/0/0", "cos\nsystem\n(S'true'\ntR.");
  StatelessGroup reader(Store::connect("127.0.0.1", damaged.port(), 2, seconds), 1, 2);
  CHECK(said([&] { reader.barrier(seconds); }) == "distributed.19");
}
