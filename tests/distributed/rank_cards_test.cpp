#include <rlalgo/distributed/rank_cards.hpp>

#include <memory>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::RankCard;
using distributed::World;

namespace {

// What every rank raises.
std::string told(const std::vector<RankCard>& cards) {
  std::vector<std::string> all(cards.size());
  support::on_ranks(static_cast<int>(cards.size()), [&](const std::shared_ptr<World>& world) {
    const auto r = static_cast<std::size_t>(world->rank());
    all[r] = support::raised_by([&] { distributed::require_own_cards(*world, cards[r]); });
  });
  for (const std::string& one : all) CHECK(one == all.front());
  return all.front();
}

}  // namespace

TEST_CASE("each rank has a GPU of its own and the same NCCL, or all are told") {
  const RankCard a{22800, "aa", ""}, b{22800, "bb", ""}, other{22905, "cc", ""};
  CHECK(told({a, b}) == "nothing");
  CHECK(support::lacks(told({a, b, other}), {"distributed.21", "2.29.5 on rank 2", "2.28.0 as on rank 0"}) == "");
  CHECK(support::lacks(told({a, b, a}), {"distributed.22", "GPU-aa", "rank 0 and rank 2", "LOCAL_RANK"}) == "");
  // One that is not known is nobody's, and a trial of NCCL may share one.
  CHECK(told({{22800, "", ""}, {22800, "", ""}}) == "nothing");
  CHECK(told({{22800, "aa", "one"}, {22800, "aa", "two"}}) == "nothing");
  CHECK(support::lacks(told({{22800, "aa", "one"}, {22800, "aa", "one"}}), {"distributed.22"}) == "");
  World alone;
  CHECK_NOTHROW(distributed::require_own_cards(alone, a));
}

TEST_CASE("the card of a process is what the CUDA runtime says of its device") {
  const support::Environment host("NCCL_HOSTID", "trial"), card("FAKE_CUDA_CARD", "0");
  const RankCard here = distributed::rank_card_here(*support::fake_library(), 0);
  CHECK(here.nccl == 22800);
  CHECK(here.gpu == "00112233-4455-6677-8899-aabbccddeeff");
  CHECK(here.host == "trial");
}
