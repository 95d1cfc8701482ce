#include <rlalgo/distributed/process_world.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <future>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::join_world;
using distributed::Place;
using distributed::Store;
using distributed::World;

namespace {

constexpr double patience = 20.0;

// `ranks` threads, each with its World; the starter has the store.
template <class F>
void with_ranks(int ranks, const F& body, double seconds = patience) {
  const Store store = Store::listen("127.0.0.1", 0);
  std::vector<std::future<void>> all;
  for (int r = 0; r < ranks; ++r)
    all.push_back(std::async(std::launch::async, [&, r] {
      body(join_world({.rank = r, .size = ranks, .host = "127.0.0.1", .port = store.port(), .hosted = true}, seconds));
    }));
  for (auto& one : all) one.get();
  SUCCEED("every RANK_CHECK holds");
}

}  // namespace

TEST_CASE("ranks gather bytes of any length in their order") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  for (const int ranks : {2, 3})
    with_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{9} << 20U}) {
        const auto letter = static_cast<char>('a' + world->rank());
        const auto parts =
            world->gather("letters", std::string(length + static_cast<std::size_t>(world->rank()), letter));
        RANK_CHECK(parts.size() == static_cast<std::size_t>(ranks));
        for (std::size_t r = 0; r < parts.size(); ++r)
          RANK_CHECK(parts[r] == std::string(length + r, static_cast<char>('a' + r)));
      }
      RANK_CHECK(world->broadcast("word", world->rank() == 1 ? "one\ntwo" : "other", 1) == "one\ntwo");
    });
}

TEST_CASE("host values are added in the order of the ranks, so all have the same bits") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const double own[] = {0.1, 1e17, -1e17};
    std::array<double, 2> values = {own[world->rank()], static_cast<double>(world->rank())};
    world->sum(values);
    RANK_CHECK(values == std::array<double, 2>{(0.1 + 1e17) + -1e17, 3.0});
    std::array<double, 1> least = {10.0 - world->rank()}, most = {-1.0 * world->rank()};
    world->minimum(least);
    world->maximum(most);
    RANK_CHECK(least[0] == 8.0);
    RANK_CHECK(most[0] == 0.0);
  });
}

TEST_CASE("metrics of the ranks are those of one that has seen everything") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    core::Metrics own;
    const double r = world->rank();
    own.mean("mean", 1.0 + r, 2.0);
    own.minimum("least", r);
    own.maximum("most", r);
    own.last("last", r);
    if (world->rank() == 1) own.mean("of one", std::numeric_limits<double>::infinity(), 1.0);
    const core::Metrics all = world->merged(own);
    RANK_CHECK(all.value("mean") == 0.75);
    RANK_CHECK(all.value("least") == 0.0);
    RANK_CHECK(all.value("most") == 1.0);
    RANK_CHECK(all.value("last") == 1.0);
    RANK_CHECK(std::isinf(all.value("of one")));
  });
}

TEST_CASE("tensors are summed whatever their types, shapes and number") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const double factor = world->rank() + 1.0;
    std::vector<tensor::Tensor> tensors;
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kFloat})
      tensors.push_back(at::arange(6, at::TensorOptions().dtype(type)).reshape({2, 3}).mul(factor));
    tensors.push_back(at::full({9 << 20}, factor, at::TensorOptions().dtype(at::kFloat)));  // more than a bucket
    tensors.push_back(at::full({3}, factor, at::TensorOptions().dtype(at::kFloat)));
    world->sum(tensors);
    for (int i = 0; i < 4; ++i)
      RANK_CHECK(at::equal(tensors[i].to(at::kDouble), at::arange(6, at::kDouble).reshape({2, 3}).mul(3.0)));
    RANK_CHECK(at::equal(tensors[4], at::full({9 << 20}, 3.0, at::kFloat)));
    RANK_CHECK(tensors[5].sum().item<double>() == 9.0);
    std::vector<tensor::Tensor> none;
    world->sum(none);
  });
}

TEST_CASE("a rank that fails ends the others at once, with its words") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    world->enter(7);
    if (world->rank() == 1) return world->fail("the disk is full");
    const os::Stopwatch watch;
    try {
      world->barrier("a test");
      RANK_CHECK(!"the barrier returned");
    } catch (const core::Error& error) {
      const std::string text = error.what();
      for (const char* part : {"distributed.8", "rank 1 failed", "the disk is full", "rank 0 of 2", "step 7", "a test"})
        RANK_CHECK(text.find(part) != std::string::npos);
    }
    RANK_CHECK(watch.seconds() < 5.0);
  });
}

TEST_CASE("a silent rank is named in time, and one that only takes long is waited for") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store store = Store::listen("127.0.0.1", 0);
  const Place first{.rank = 0, .size = 2, .host = "127.0.0.1", .port = store.port(), .hosted = true};
  Place second = first;
  second.rank = 1;
  auto other = std::async(std::launch::async, [&] { return join_world(second, 0.6); });
  const auto world = join_world(first, 0.6);
  {
    const auto slow = other.get();
    auto late = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      slow->barrier("slow");
    });
    CHECK_NOTHROW(world->barrier("slow"));
    late.get();
  }
  const os::Stopwatch watch;
  CHECK(support::number_raised_by([&] { world->barrier("gone"); }) == "distributed.6");
  CHECK(watch.seconds() < 5.0);
}

TEST_CASE("ranks at different operations are told which") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    RANK_CHECK(support::number_raised_by([&] { world->barrier(world->rank() == 0 ? "save" : "step"); }) ==
               "distributed.9");
  });
}

TEST_CASE("threads beside the first meet in an order of their own, and share its failures") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const std::shared_ptr<World> beside = world->duplicate("generation");
    RANK_CHECK(beside->rank() == world->rank());
    RANK_CHECK(beside->size() == 3);
    auto other = std::async(std::launch::async, [&] {
      std::string seen;
      for (int i = 0; i < 20; ++i) seen += beside->broadcast("word", world->rank() == 0 ? "b" + std::to_string(i) : "");
      return seen;
    });
    std::string seen, expected, expected_beside;
    for (int i = 0; i < 30; ++i) {
      seen += world->broadcast("another word", world->rank() == 0 ? "a" + std::to_string(i) : "");
      expected += "a" + std::to_string(i);
      if (i < 20) expected_beside += "b" + std::to_string(i);
    }
    RANK_CHECK(seen == expected);
    RANK_CHECK(other.get() == expected_beside);
    std::vector<tensor::Tensor> tensors = {at::ones({2}, at::kFloat)};
    RANK_CHECK(support::number_raised_by([&] { beside->sum(tensors); }) == "distributed.9");
    world->barrier("before the failure");
    if (world->rank() == 1) return beside->fail("the reward is gone");
    RANK_CHECK(support::number_raised_by([&] { world->barrier("after it"); }) == "distributed.8");
    RANK_CHECK(support::number_raised_by([&] { world->check(); }) == "distributed.8");
    RANK_CHECK(support::number_raised_by([&] { beside->barrier("beside it"); }) == "distributed.8");
  });
}

TEST_CASE("what a rank does while it waits may end the wait") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto beside = world->duplicate("generation");
    if (world->rank() == 0) {
      int ticks = 0;
      beside->while_waiting([&] {
        if (++ticks == 3) throw std::domain_error("enough");
      });
      bool ended = false;
      try {
        beside->barrier("never");
      } catch (const std::domain_error&) {
        ended = true;
      }
      RANK_CHECK(ended);
    }
    world->barrier("the end");
  });
}

TEST_CASE("what one rank gives up all give up, and then they go on together") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  os::Interruption::clear();
  with_ranks(3, [&](const std::shared_ptr<World>& world) {
    for (int round = 0; round < 3; ++round) {
      world->barrier("first");
      if (world->rank() == round) {
        world->give_up(SIGTERM);
      } else {
        try {
          if (world->rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
          world->barrier("second");
          RANK_CHECK(!"the barrier returned");
        } catch (const os::Interrupted& stop) {
          RANK_CHECK(stop.number() == 8);
          world->give_up(SIGTERM);
        }
        RANK_CHECK(os::Interruption::signal() == SIGTERM);
      }
      RANK_CHECK(world->broadcast("the last word", world->rank() == 0 ? "saved" : "") == "saved");
    }
  });
  os::Interruption::clear();
}

TEST_CASE("an error of all ranks is said by one") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  std::atomic<int> said{0}, other{0};
  with_ranks(3, [&](const std::shared_ptr<World>& world) {
    said += world->first_to_say("[rlalgo.trainer.32] no advantage") ? 1 : 0;
    other += world->first_to_say("of rank " + std::to_string(world->rank())) ? 1 : 0;
    world->barrier("the end");
  });
  CHECK(said == 1);
  CHECK(other == 3);
}

TEST_CASE("the environment of a launcher says where a rank stands") {
  const auto with = [](const std::vector<std::pair<const char*, const char*>>& values) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
      ::unsetenv(name);
    for (const auto& [name, value] : values) ::setenv(name, value, 1);
    return distributed::place_from_environment();
  };
  CHECK_FALSE(with({}).has_value());
  CHECK_FALSE(with({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).has_value());
  const auto place = with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.5"}, {"MASTER_PORT", "29500"}});
  REQUIRE(place.has_value());
  CHECK(place->rank == 1);
  CHECK(place->size == 4);
  CHECK(place->host == "10.0.0.5");
  CHECK(place->port == 29500);
  CHECK_FALSE(place->hosted);
  CHECK(support::number_raised_by([&] { (void)with({{"RANK", "1"}}); }) == "distributed.7");
  CHECK(support::number_raised_by([&] { (void)with({{"RANK", "4"}, {"WORLD_SIZE", "4"}}); }) == "distributed.7");
  CHECK(support::number_raised_by([&] { (void)with({{"RANK", "1x"}, {"WORLD_SIZE", "4"}}); }) == "distributed.7");
  CHECK(support::number_raised_by([&] {
          (void)with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}});
        }) == "distributed.7");
  (void)with({});
}
