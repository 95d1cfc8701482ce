#include <rlalgo/distributed/pass_rounds.hpp>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/os/interruption.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>
#include <support/process_ranks.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::PassRounds;
using distributed::World;
using Pass = model::LayerGate::Pass;

namespace {

constexpr auto forward = model::LayerGate::Phase::forward, backward = model::LayerGate::Phase::backward;

class Member final : public PassRounds::Member {
 public:
  void chosen(const Pass& pass) override { calls += pass.phase == forward ? "F" : "B"; }
  void help(const Pass& /*pass*/) override { calls += "h"; }
  void serve_fetch(int fetcher) override { calls += std::to_string(fetcher); }
  void settled() override { calls += "."; }
  void reset() noexcept override { calls += "!"; }
  std::string calls;
};

std::shared_ptr<PassRounds> rounds_of(World& world) {
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  return std::make_shared<PassRounds>(world.convene(all));
}

}  // namespace

TEST_CASE("ranks help with the passes of others until nobody has one") {
  std::vector<std::string> calls(3), other(3);
  support::with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const auto rounds = rounds_of(*world);
    Member policy, reference;
    const auto first = rounds->join(policy), second = rounds->join(reference);
    const auto rank = static_cast<std::size_t>(world->rank());
    // Rank r has r passes of the policy, there and back; rank 0 one of the reference.
    if (rank == 0) rounds->enter(second, {forward, 2, false});
    for (std::size_t i = 0; i < rank; ++i) {
      rounds->enter(first, {forward, 2, true});
      rounds->enter(first, {backward, 2, true});
    }
    rounds->settle();
    calls[rank] = policy.calls;
    other[rank] = reference.calls;
    rounds->settle();
    RANK_CHECK(policy.calls == calls[rank] + ".");
  });
  support::needs(distributed::gloo_built(), support::without_gloo);
  CHECK(calls == std::vector<std::string>{"FhBhFhBh.", "FBFhBh.", "FBFB."});
  CHECK(other == std::vector<std::string>{"F.", "Fh.", "Fh."});
}

TEST_CASE("a pass of other layers is another pass") {
  std::vector<std::string> calls(2);
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto rounds = rounds_of(*world);
    Member policy;
    const auto own = rounds->join(policy);
    rounds->enter(own, {forward, world->rank() + 1, false});
    rounds->settle();
    calls[static_cast<std::size_t>(world->rank())] = policy.calls;
  });
  support::needs(distributed::gloo_built(), support::without_gloo);
  CHECK(calls == std::vector<std::string>{"FFh.", "FhF."});
}

TEST_CASE("a rank that fetches is served by those that have a pass to do, and by those that wait") {
  std::vector<std::string> calls(3);
  support::with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const auto rounds = rounds_of(*world);
    Member policy;
    const auto own = rounds->join(policy);
    if (world->rank() == 0) rounds->begin_fetch(own);
    if (world->rank() == 1) rounds->enter(own, {forward, 2, false});
    if (world->rank() == 2) rounds->begin_fetch(own);  // each has a fetch of its own
    rounds->settle();
    calls[static_cast<std::size_t>(world->rank())] = policy.calls;
  });
  support::needs(distributed::gloo_built(), support::without_gloo);
  CHECK(calls == std::vector<std::string>{"Fh2.", "0F2.", "0Fh."});
}

TEST_CASE("after ranks gave up, members begin from nothing; who has left is not asked") {
  os::Interruption::clear();
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto rounds = rounds_of(*world);
    Member policy, gone;
    const auto own = rounds->join(policy);
    rounds->leave(rounds->join(gone));
    if (world->rank() == 1) {
      world->give_up(SIGTERM);
    } else {
      try {
        rounds->enter(own, {forward, 1, false});
        RANK_CHECK(!"the pass was entered");
      } catch (const os::Interrupted&) {
        world->give_up(SIGTERM);
      }
    }
    rounds->settle();
    RANK_CHECK(policy.calls == "!.");
    RANK_CHECK(gone.calls.empty());
    world->barrier("the end");
  });
  os::Interruption::clear();
}
