#include <rlalgo/sync/turns.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

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

static_assert(inference::Generator<sync::TurnsGenerator<Slow>> && sync::SyncPolicy<sync::TurnsSync<Watching>>);
static_assert(sync::SyncPolicyFor<sync::TurnsSync<Watching>, sync::TurnsGenerator<Slow>>);

}  // namespace

TEST_CASE("a hand-over waits for the call under way, and completions have the version that it began with") {
  for (const bool exclusive : {true, false}) {
    Slow slow;
    std::atomic<int> within{0};
    const auto turns = std::make_shared<sync::Turns>();
    sync::TurnsGenerator<Slow> generator(slow, turns);
    sync::TurnsSync<Watching> policy({&slow, &within}, turns, exclusive);
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

TEST_CASE("turns around an erased policy serve what it serves") {
  Slow slow;
  std::atomic<int> within{0};
  const sync::TurnsSync<sync::AnySync> policy(sync::AnySync(Watching{&slow, &within}), std::make_shared<sync::Turns>(),
                                              true);
  CHECK(policy.serves(inference::WeightSource::remote));
  CHECK_FALSE(policy.serves(inference::WeightSource::shared));
}
