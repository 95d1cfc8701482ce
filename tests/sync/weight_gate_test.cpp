#include <rlalgo/sync/weight_gate.hpp>

#include <support/catch.hpp>
#include <support/thread_world.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sync/any_sync.hpp>

using namespace rlalgo;

namespace {

// Generates for a while; notices a publish that falls into a call.
struct Slow {
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;
  std::atomic<bool> generating{false};
  std::int64_t own_version = -1;

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    generating = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    generating = false;
    std::vector<std::vector<data::Completion>> out(requests.size());
    for (auto& group : out) {
      group.emplace_back();
      group[0].weights_version = own_version;
    }
    return out;
  }
};

struct Watching {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  const Slow* generator;
  std::atomic<int>* within;
  sync::Published publish(std::int64_t version) {
    if (generator->generating) ++*within;
    return {.version = version, .status = sync::Published::Status::sent};
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{-7}; };
  }
};

static_assert(inference::Generator<sync::GatedGenerator<Slow>> && sync::SyncPolicy<sync::GatedSync<Watching>>);
static_assert(sync::SyncPolicyFor<sync::GatedSync<Watching>, sync::GatedGenerator<Slow>>);

}  // namespace

TEST_CASE("a hand-over waits for the call under way, and completions have the version that it began with") {
  for (const bool exclusive : {true, false}) {
    Slow slow;
    std::atomic<int> within{0};
    const auto gate = std::make_shared<sync::WeightGate>();
    sync::GatedGenerator<Slow> generator(slow, gate);
    sync::GatedSync<Watching> policy({&slow, &within}, gate, exclusive);
    const auto version = policy.version_source();
    CHECK(version() == -1);
    policy.publish(3);
    CHECK(version() == 3);
    const std::vector<inference::Request> requests(1);
    std::vector<std::vector<data::Completion>> out;
    std::thread producer([&] { out = generator.generate(requests, {}, {}); });
    while (!slow.generating) std::this_thread::yield();
    policy.publish(4);
    CHECK(within == (exclusive ? 0 : 1));
    producer.join();
    CHECK(out[0][0].weights_version == 3);
    CHECK(version() == 4);
    slow.own_version = 9;
    CHECK(generator.generate(requests, {}, {})[0][0].weights_version == 9);  // it knows better
  }
}

TEST_CASE("asynchronous calls of several ranks have one version, that of the rank that is furthest") {
  for (const bool holds : {true, false})
    support::on_ranks(3, [&](const std::shared_ptr<distributed::World>& world) {
      Slow slow;
      std::atomic<int> within{0};
      const auto gate = std::make_shared<sync::WeightGate>();
      gate->trainers = world;
      gate->callers = world->duplicate("generation");
      std::int64_t held = -1;
      if (holds)
        gate->hold = [&] {
          held = gate->version;
          return held;
        };
      sync::GatedGenerator<Slow> generator(slow, gate);
      sync::GatedSync<Watching> policy({&slow, &within}, gate, !holds);
      policy.publish(0);
      std::vector<std::int64_t> versions;
      std::thread producer([&] {
        // A rank without a share of its own agrees, too.
        const std::vector<inference::Request> requests(world->rank() == 2 ? 0 : 1);
        for (int call = 0; call < 8; ++call) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rewards: the trainer gets its turn
          const auto out = generator.generate(requests, {}, {});
          versions.push_back(!out.empty() && !holds ? out[0][0].weights_version : holds ? held : gate->version.load());
        }
      });
      for (std::int64_t version = 1; version < 12; ++version) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10 + 15 * world->rank()));
        policy.publish(version);
      }
      producer.join();
      std::string text;
      for (const std::int64_t version : versions) text += std::to_string(version) + " ";
      const auto all = world->gather("versions", text);
      RANK_CHECK(all[0] == all[1]);
      RANK_CHECK(versions.back() > 0);
      if (holds) RANK_CHECK(all[2] == all[0]);
    });
}

namespace {

// A server with its weights: started anew, it has none, and says so as a version of its own, or breaks the connection.
struct Server {
  std::atomic<std::int64_t> has{-1};
  std::atomic<int> handed_over{0}, refused{0};
  std::atomic<bool> up{true};
};

struct Asking {
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;
  Server* server;
  std::shared_ptr<sync::WeightGate> gate;
  bool tells = true;          // the version
  int restarts = 0;           // in the next calls
  bool breaks = false;        // the call with it
  bool breaks_quiet = false;  // and is repeated by the client

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    if (restarts > 0) {
      --restarts;
      server->has = -1;
      if (breaks_quiet || breaks) gate->doubt = true;
      if (breaks) core::raise("http", 1, {.what = "broken"});
    }
    std::vector<std::vector<data::Completion>> out(requests.size());
    for (auto& group : out) {
      group.emplace_back();
      group[0].ids = {static_cast<data::TokenId>(server->has)};
      group[0].weights_version = tells ? server->has.load() : -1;
    }
    return out;
  }
};

struct Handing {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  Server* server;
  std::int64_t known = -1;
  sync::Published publish(std::int64_t version) {
    if (version == known) return {.version = version};
    if (server->refused > 0) {
      --server->refused;
      core::raise("http", 2, {.what = "no such session"});
    }
    ++server->handed_over;
    server->has = known = version;
    return {.version = version, .status = sync::Published::Status::sent};
  }
  static constexpr sync::Hooks hooks{.forget = true};
  void forget() { known = -1; }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{-7}; };
  }
};

}  // namespace

TEST_CASE("a server that was started anew gets its weights again before anything that it generates is used") {
  for (const bool erased : {false, true})
    for (const int how : {0, 1, 2})  // it says another version; its connection breaks; the client has asked again
      for (const bool asynchronous : {false, true}) {
        INFO("how " << how << " asynchronous " << asynchronous);
        Server server;
        const auto gate = std::make_shared<sync::WeightGate>();
        Asking asking{&server, gate, how == 0};
        sync::GatedGenerator<Asking> generator(asking, gate);
        std::function<sync::Published(std::int64_t)> publish;
        if (erased) {
          publish = [policy =
                         sync::AnySync(sync::GatedSync<sync::AnySync>(sync::AnySync(Handing{&server}), gate, true))](
                        std::int64_t v) mutable { return policy.publish(v); };
        } else {
          publish = [policy = std::make_shared<sync::GatedSync<Handing>>(Handing{&server}, gate, true)](
                        std::int64_t v) { return policy->publish(v); };
        }
        publish(5);
        const std::vector<inference::Request> requests(2);
        CHECK(generator.generate(requests, {}, {})[1][0].ids[0] == 5);
        asking.restarts = 1;
        asking.breaks = how == 1;
        asking.breaks_quiet = how == 2;
        std::vector<std::vector<data::Completion>> out;
        std::atomic<bool> done{false};
        const auto call = [&] {
          out = generator.generate(requests, {}, {});
          done = true;
        };
        if (asynchronous) {
          std::thread producer(call);
          std::this_thread::sleep_for(std::chrono::milliseconds(60));
          CHECK_FALSE(done);  // the trainer's tensors are the trainer's
          CHECK(server.handed_over == 1);
          while (!done) sync::restore_if_lost(*gate, 6);
          producer.join();
          CHECK(out[1][0].ids[0] == 6);
          CHECK(out[1][0].weights_version == 6);
        } else {
          call();
          CHECK(out[1][0].ids[0] == 5);
        }
        CHECK(server.handed_over == 2);
        CHECK_FALSE(gate->lost);
        publish(6);  // what is in force is not sent again
        CHECK(server.handed_over == (asynchronous ? 2 : 3));
      }
}

namespace {

struct Late {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  Server* server;
  sync::Published publish(std::int64_t) {
    ++server->handed_over;
    core::raise("http", 1, {.what = "the deadline passed"});
  }
  static constexpr sync::Hooks hooks{.forget = true};
  void forget() {}
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{-7}; };
  }
};

}  // namespace

TEST_CASE("a server that lets a deadline pass was not started anew: nothing is repeated") {
  Server server;
  const auto gate = std::make_shared<sync::WeightGate>();
  sync::GatedSync<Late> policy(Late{&server}, gate, true);
  gate->doubt = true;  // of a call before
  CHECK_THROWS_WITH(policy.publish(3), Catch::Contains("[rlalgo.http.1]"));
  CHECK(server.handed_over == 1);

  const auto quiet = std::make_shared<sync::WeightGate>();
  Server other;
  sync::GatedSync<Handing> handing(Handing{&other}, quiet, true);
  handing.publish(5);
  struct Silent : Asking {
    std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request>,
                                                        const inference::SamplingConfig&, inference::DrawKey) {
      core::raise("http", 1, {.what = "the deadline passed"});
    }
  };
  Silent silent{{&other, quiet}};
  sync::GatedGenerator<Silent> generator(silent, quiet);
  const std::vector<inference::Request> requests(1);
  CHECK_THROWS_WITH(generator.generate(requests, {}, {}), Catch::Contains("[rlalgo.http.1]"));
  CHECK(other.handed_over == 1);
}

TEST_CASE(
    "a server that is lost while weights are handed over gets them from the beginning, and a refusal that stays is "
    "told") {
  Server server;
  const auto gate = std::make_shared<sync::WeightGate>();
  sync::GatedSync<Handing> policy(Handing{&server}, gate, true);
  server.refused = 1;
  policy.publish(3);
  CHECK(server.has == 3);
  server.refused = 2;
  CHECK_THROWS_WITH(policy.publish(4), Catch::Contains("[rlalgo.http.2]"));
}

TEST_CASE("a server that loses its weights again and again ends the call, and a stop ends the wait for the trainer") {
  Server server;
  const auto gate = std::make_shared<sync::WeightGate>();
  std::stop_source stop;
  gate->stop = stop.get_token();
  Asking asking{&server, gate};
  sync::GatedGenerator<Asking> generator(asking, gate);
  sync::GatedSync<Handing> policy(Handing{&server}, gate, true);
  policy.publish(1);
  const std::vector<inference::Request> requests(1);
  (void)generator.generate(requests, {}, {});
  asking.restarts = 100;
  CHECK_THROWS_WITH(generator.generate(requests, {}, {}), Catch::Contains("[rlalgo.sync.4]"));
  CHECK(asking.restarts == 96);
  asking.breaks = true;
  CHECK_THROWS_WITH(generator.generate(requests, {}, {}), Catch::Contains("[rlalgo.http.1]"));
  std::atomic<bool> given_up{false};
  std::thread producer([&] {
    try {
      (void)generator.generate(requests, {}, {});
    } catch (const os::Interrupted&) {
      given_up = true;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  stop.request_stop();
  producer.join();
  CHECK(given_up);
}

TEST_CASE("a gate around an erased policy serves what it serves") {
  Slow slow;
  std::atomic<int> within{0};
  const sync::GatedSync<sync::AnySync> policy(sync::AnySync(Watching{&slow, &within}),
                                              std::make_shared<sync::WeightGate>(), true);
  CHECK(policy.serves(inference::WeightSource::remote));
  CHECK_FALSE(policy.serves(inference::WeightSource::shared));
}
