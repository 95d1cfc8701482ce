#include <rlalgo/sync/asynchronous.hpp>

#include <support/catch.hpp>
#include <support/snapshot_table.hpp>

#include <functional>
#include <memory>
#include <vector>

#include <rlalgo/sync/any_sync.hpp>

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

using Generator = sync::AsynchronousGenerator<support::SnapshotTable>;
using Policy = sync::AsynchronousSync<Copying>;
static_assert(inference::Generator<Generator> && sync::SyncPolicy<Policy> && sync::SyncPolicyFor<Policy, Generator>);
static_assert(sync::SyncPolicy<sync::AsynchronousSync<sync::AnySync>>);

}  // namespace

TEST_CASE("both ends share a gate: what is published is what the next call draws from and says") {
  support::SnapshotTable table;
  const sync::Asynchronous shared{.exclusive = true};
  auto generator = sync::asynchronous_generator(table, shared);
  auto policy = sync::asynchronous_sync(Copying{&table}, shared);
  CHECK(policy.version_source()() == -1);
  policy.publish(3);
  CHECK(policy.version_source()() == 3);
  CHECK(shared.gate->version() == 3);
  std::vector<inference::Request> requests(1);
  requests[0].prompt = {1};
  CHECK(generator.generate(requests, {}, {})[0][0].weights_version == 3);
  CHECK(generator.source() == inference::WeightSource::snapshot);
  CHECK(policy.serves(inference::WeightSource::snapshot));
  CHECK_FALSE(policy.serves(inference::WeightSource::remote));
  shared.meanwhile(3);  // nothing can be lost
}
