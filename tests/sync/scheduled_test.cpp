#include <rlalgo/sync/scheduled.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>
#include <support/snapshot_table.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/sync/asynchronous.hpp>

using namespace rlalgo;

namespace {

struct Copying {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::snapshot; }
  support::SnapshotTable* table;
  sync::Published publish(std::int64_t version) {
    table->version = version;
    return {.version = version, .status = sync::Published::Status::copied};
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return {}; }
};

// The versions of five calls, while a trainer publishes five versions with pauses of so many milliseconds.
std::vector<std::int64_t> versions_of(const std::shared_ptr<sync::CallSchedule>& schedule, int call, int publish) {
  support::SnapshotTable table;
  table.milliseconds = call;
  const sync::Asynchronous shared{.exclusive = true, .schedule = schedule};
  auto generator = sync::asynchronous_generator(table, shared);
  auto policy = sync::asynchronous_sync(Copying{&table}, shared);
  policy.publish(0);
  std::vector<std::int64_t> out;
  std::thread producer([&] {
    std::vector<inference::Request> requests(1);
    requests[0].prompt = {1};
    for (std::uint64_t generation = 0; generation < 5; ++generation)
      out.push_back(generator.generate(requests, {}, {.seed = 0, .step = generation})[0][0].weights_version);
  });
  for (std::int64_t version = 1; version < 5; ++version) {
    std::this_thread::sleep_for(std::chrono::milliseconds(publish));
    policy.publish(version);
  }
  producer.join();
  return out;
}

}  // namespace

TEST_CASE("calls that were recorded have their versions again, however fast the two threads are") {
  const support::ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "calls.jsonl";
  const auto recorded = versions_of(std::make_shared<sync::CallSchedule>(file), 8, 5);
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t i = 0; i < recorded.size(); ++i)
    CHECK(text.find("\"generation\":" + std::to_string(i) + ",\"call\":0,\"version\":" + std::to_string(recorded[i])) !=
          std::string::npos);
  for (const auto& [call, publish] : {std::pair{0, 0}, {15, 0}, {0, 15}})
    CHECK(versions_of(std::make_shared<sync::CallSchedule>(sync::CallSchedule::repeated(file, 20)), call, publish) ==
          recorded);
}

TEST_CASE("calls of the trainer's own thread are in no record, and a call that fails leaves nobody waiting") {
  const support::ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "calls.jsonl";
  support::SnapshotTable table;
  const sync::Asynchronous shared{.exclusive = true, .schedule = std::make_shared<sync::CallSchedule>(file)};
  auto generator = sync::asynchronous_generator(table, shared);
  auto policy = sync::asynchronous_sync(Copying{&table}, shared);
  policy.publish(0);
  std::vector<inference::Request> requests(1);
  requests[0].prompt = {1};
  CHECK(generator.generate(requests, {}, {}).size() == 1);
  CHECK_FALSE(std::filesystem::exists(file));

  std::ofstream(file) << "{\"generation\":3,\"call\":0,\"version\":0}\n{\"generation\":4,\"call\":0,\"version\":0}\n";
  const sync::Asynchronous again{
      .exclusive = true, .schedule = std::make_shared<sync::CallSchedule>(sync::CallSchedule::repeated(file, 20))};
  auto failing = sync::asynchronous_generator(table, again);
  auto trainer = sync::asynchronous_sync(Copying{&table}, again);
  trainer.publish(0);
  table.fails_at = 3;
  std::thread([&] { CHECK_THROWS(failing.generate(requests, {}, {.seed = 0, .step = 3})); }).join();
  trainer.publish(1);  // not after 20 seconds: the call of generation 4 will not come
}
