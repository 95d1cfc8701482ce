#include <rlalgo/sync/weight_gate.hpp>

#include <support/catch.hpp>
#include <support/thread_world.hpp>

#include <algorithm>
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
      std::int64_t held = -1;
      sync::CallingRanks callers{.world = world->duplicate("generation")};
      if (holds)
        callers.hold = [&] {
          held = gate->version();
          return held;
        };
      sync::GatedGenerator<Slow> generator(slow, gate, callers);
      sync::GatedSync<Watching> policy({&slow, &within}, gate, !holds, {.trainers = world});
      policy.publish(0);
      std::vector<std::int64_t> versions;
      std::thread producer([&] {
        // A rank without a share of its own agrees, too.
        const std::vector<inference::Request> requests(world->rank() == 2 ? 0 : 1);
        for (int call = 0; call < 8; ++call) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rewards: the trainer gets its turn
          const auto out = generator.generate(requests, {}, {});
          versions.push_back(!out.empty() && !holds ? out[0][0].weights_version : holds ? held : gate->version());
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

TEST_CASE(
    "no call begins while a publish waits for the one under way: publishes are not kept waiting by calls in a row") {
  Slow slow;
  std::atomic<int> within{0};
  const auto gate = std::make_shared<sync::WeightGate>();
  sync::GatedGenerator<Slow> generator(slow, gate);
  sync::GatedSync<Watching> policy({&slow, &within}, gate, true);
  policy.publish(0);
  std::vector<std::int64_t> versions;
  std::atomic<bool> stop{false};
  std::thread producer([&] {
    const std::vector<inference::Request> requests(1);
    while (!stop) versions.push_back(generator.generate(requests, {}, {})[0][0].weights_version);
  });
  for (std::int64_t version = 1; version <= 5; ++version) {
    while (!slow.generating) std::this_thread::yield();
    policy.publish(version);
  }
  stop = true;
  producer.join();
  CHECK(within == 0);
  CHECK(std::is_sorted(versions.begin(), versions.end()));
  CHECK(versions.size() <= 7);  // one for each version, and one more at each end
}

TEST_CASE("a stop ends the wait for a version, and a publish that fails leaves the gate as it was") {
  std::stop_source stop;
  sync::WeightGate gate(stop.get_token());
  std::atomic<bool> given_up{false};
  std::thread waiting([&] {
    try {
      gate.wait_for(1);
    } catch (const os::Interrupted&) {
      given_up = true;
    }
  });
  stop.request_stop();
  waiting.join();
  CHECK(given_up);
  struct Failing {
    static constexpr bool reaches(inference::WeightSource) { return true; }
    sync::Published publish(std::int64_t) { core::raise("http", 1, {.what = "gone"}); }
    [[nodiscard]] std::function<std::int64_t()> version_source() const { return {}; }
  };
  const auto shared = std::make_shared<sync::WeightGate>();
  sync::GatedSync<Failing> policy(Failing{}, shared, true);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(policy.publish(4), Catch::Contains("[rlalgo.http.1]"));
  CHECK(shared->version() == -1);
  CHECK(sync::WeightGate::Call(*shared).version() == -1);  // nobody holds it
}

TEST_CASE("a gate around an erased policy serves what it serves") {
  Slow slow;
  std::atomic<int> within{0};
  const sync::GatedSync<sync::AnySync> policy(sync::AnySync(Watching{&slow, &within}),
                                              std::make_shared<sync::WeightGate>(), true);
  CHECK(policy.serves(inference::WeightSource::remote));
  CHECK_FALSE(policy.serves(inference::WeightSource::shared));
}
