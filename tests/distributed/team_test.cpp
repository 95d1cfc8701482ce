#include <rlalgo/distributed/team.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::Pending;
using distributed::Team;
using distributed::World;
using support::everybody;
using support::with_ranks;
using tensor::Tensor;

namespace {

Tensor row(std::vector<float> values) { return tensor::from_values(values, at::TensorOptions().dtype(at::kFloat)); }

}  // namespace

TEST_CASE("a team hands tensors round while its ranks compute") {
  for (const int ranks : {2, 3})
    with_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const auto team = world->convene(everybody(*world));
      RANK_CHECK(team->size() == ranks);
      RANK_CHECK(team->rank() == world->rank());
      const auto own = static_cast<float>(world->rank());
      const Tensor whole = at::zeros({2 * ranks}, at::kFloat), other = at::zeros({2 * ranks}, at::kDouble);
      // Two under way at once; one part lies where it belongs.
      Pending first = team->all_gather(whole, row({own, own + 0.5F}));
      other.narrow(0, 2 * world->rank(), 2).fill_(own);
      Pending second = team->all_gather(other, other.narrow(0, 2 * world->rank(), 2));
      RANK_CHECK(first.under_way());
      second.wait();
      first.wait();
      RANK_CHECK(!first.under_way());
      for (int r = 0; r < ranks; ++r) {
        RANK_CHECK(whole[2 * r].item<float>() == static_cast<float>(r));
        RANK_CHECK(whole[2 * r + 1].item<float>() == static_cast<float>(r) + 0.5F);
        RANK_CHECK(other[2 * r + 1].item<double>() == r);
      }

      const Tensor sent = at::arange(ranks, at::kFloat).add_(10.0 * world->rank()), received = at::zeros_like(sent);
      team->all_to_all(received, sent).wait();
      for (int r = 0; r < ranks; ++r) RANK_CHECK(received[r].item<float>() == 10.0F * static_cast<float>(r) + own);

      // Pieces of different sizes, to the next one and to the one before.
      const auto before = (world->rank() + ranks - 1) % ranks, after = (world->rank() + 1) % ranks;
      const Tensor piece = at::full({world->rank() + 1, 3}, own, at::kBFloat16);
      const Tensor from_before = at::zeros({before + 1, 3}, at::kBFloat16);
      const Tensor from_after = at::zeros({after + 1, 3}, at::kBFloat16);
      Pending down = team->shift(from_before, piece);
      Pending up = team->shift(from_after, piece, -1);
      down.wait();
      up.wait();
      RANK_CHECK(at::equal(from_before, at::full({before + 1, 3}, before, at::kBFloat16)));
      RANK_CHECK(at::equal(from_after, at::full({after + 1, 3}, after, at::kBFloat16)));
    });
}

TEST_CASE("a sum over a team has the same bits on all of its ranks") {
  std::vector<Tensor> results(3);
  with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const auto team = world->convene(everybody(*world));
    const float own[] = {0.1F, 1e9F, -1e9F};
    std::vector<Tensor> tensors = {at::full({2, 2}, own[world->rank()], at::kFloat), at::ones({7}, at::kBFloat16),
                                   at::full({1}, 0.1 * world->rank(), at::kDouble)};
    team->sum(tensors);
    RANK_CHECK(tensors[0][1][1].item<float>() == (0.1F + 1e9F) + -1e9F);  // in the order of the ranks
    RANK_CHECK(at::equal(tensors[1], at::full({7}, 3.0, at::kBFloat16)));
    RANK_CHECK(tensors[2].item<double>() == 0.0 + 0.1 + 0.2);
    results[static_cast<std::size_t>(world->rank())] = tensors[2];
  });
  CHECK(at::equal(results[0], results[2]));
}

TEST_CASE("sums go on while ranks compute, in their order among other operations") {
  with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const auto team = world->convene(everybody(*world));
    const float own[] = {0.1F, 1e9F, -1e9F};
    const float in_order = (0.1F + 1e9F) + -1e9F;
    const auto mine = own[world->rank()];
    const Tensor much = at::full({7 << 20}, mine, at::kFloat), little = at::full({5}, mine, at::kFloat);
    const Tensor transposed = at::full({2, 3}, mine, at::kFloat).t(), none = at::zeros({0}, at::kFloat);
    const Tensor whole = at::zeros({3}, at::kFloat);
    Pending first = team->begin_sum("a sum", {little, much, transposed, none});  // more than a bucket
    Pending second = team->all_gather(whole, row({mine}));
    Pending third = team->begin_sum("another", {whole});  // of what the one before receives
    RANK_CHECK(first.under_way());
    third.wait();
    second.wait();
    first.wait();
    for (const Tensor& one : {much, little, transposed}) RANK_CHECK(at::equal(one, at::full_like(one, in_order)));
    for (int r = 0; r < 3; ++r) RANK_CHECK(whole[r].item<float>() == (own[r] + own[r]) + own[r]);
    world->barrier("the end");
  });
}

TEST_CASE("ranks are of several teams, beside each other and across") {
  with_ranks(4, [&](const std::shared_ptr<World>& world) {
    const int rank = world->rank(), side = rank / 2;
    const auto row_team = world->convene({2 * side, 2 * side + 1});
    const auto column_team = world->convene({rank % 2, rank % 2 + 2});
    const auto alone = world->convene({rank});
    RANK_CHECK(row_team->rank() == rank % 2);
    RANK_CHECK(column_team->rank() == side);
    RANK_CHECK(alone->size() == 1);
    std::vector<Tensor> value = {at::full({1}, 1 << rank, at::kFloat)};
    row_team->sum(value);
    RANK_CHECK(value[0].item<float>() == (side == 0 ? 3.0F : 12.0F));
    column_team->sum(value);
    RANK_CHECK(value[0].item<float>() == 15.0F);
    alone->sum(value);
    alone->all_gather(value[0], value[0]).wait();
    RANK_CHECK(value[0].item<float>() == 15.0F);
    world->barrier("the end");
  });
}

TEST_CASE("ranks that cannot form a team are told, and tensors that do not fit") {
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto own = world->rank();
    RANK_CHECK(support::number_raised_by([&] { (void)world->convene({0}); }) ==
               (own == 0 ? "nothing" : "distributed.10"));
    RANK_CHECK(support::number_raised_by([&] { (void)world->convene({0, 1, 1}); }) == "distributed.10");
    RANK_CHECK(support::number_raised_by([&] {
                 (void)world->convene(own == 0 ? std::vector{0, 1} : std::vector{1, 0});
               }) == "distributed.10");
    const auto team = world->convene({1, 0});
    RANK_CHECK(team->rank() == 1 - own);
    const Tensor three = at::zeros({3}, at::kFloat), two = at::zeros({2}, at::kFloat);
    RANK_CHECK(support::number_raised_by([&] { (void)team->all_gather(three, two); }) == "distributed.11");
    RANK_CHECK(support::number_raised_by([&] { (void)team->all_gather(two, two); }) == "distributed.11");
    RANK_CHECK(support::number_raised_by([&] { (void)team->all_to_all(two, three); }) == "distributed.11");
    RANK_CHECK(support::number_raised_by([&] { (void)team->shift(at::zeros({2, 2}).t(), two); }) == "distributed.11");
    world->barrier("the end");
  });
}

TEST_CASE("a rank that takes long is waited for, one that fails or is silent ends the wait") {
  std::latch both(2);  // have the first sum: a rank that fails ends what others still wait for
  with_ranks(
      2,
      [&](const std::shared_ptr<World>& world) {
        const auto team = world->convene({0, 1});
        std::vector<Tensor> value = {at::ones({1}, at::kFloat)};
        if (world->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        team->sum(value);
        both.count_down();
        for (const os::Stopwatch waited; !both.try_wait() && waited.seconds() < 10.0;)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        RANK_CHECK(value[0].item<float>() == 2.0F);
        world->enter(3);
        if (world->rank() == 1) return world->fail("the disk is full");
        try {
          team->sum(value);
          RANK_CHECK(!"the sum returned");
        } catch (const core::Error& error) {
          const std::string text = error.what();
          for (const char* part : {"distributed.8", "the disk is full", "rank 0 of 2", "step 3", "sum"})
            RANK_CHECK(text.find(part) != std::string::npos);
        }
      },
      0.6);
  std::promise<void> over;
  const std::shared_future<void> ended = over.get_future().share();
  const distributed::Store store = distributed::Store::listen("127.0.0.1", 0);
  const distributed::Place first{.rank = 0, .size = 2, .host = "127.0.0.1", .port = store.port(), .hosted = true};
  auto other = std::async(std::launch::async, [&, second = first]() mutable {
    second.rank = 1;
    auto world = distributed::join_world(second, 0.6);
    auto team = world->convene({0, 1});
    world = nullptr;  // no more signs of life
    ended.wait();
  });
  const auto world = distributed::join_world(first, 0.6);
  const auto team = world->convene({0, 1});
  std::vector<Tensor> value = {at::ones({1}, at::kFloat)};
  const os::Stopwatch watch;
  CHECK(support::number_raised_by([&] { team->sum(value); }) == "distributed.6");
  CHECK(watch.seconds() < 5.0);
  over.set_value();
  other.get();
}

TEST_CASE("a team goes on after its ranks gave up what was under way") {
  os::Interruption::clear();
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto team = world->convene({0, 1});
    std::vector<Tensor> value = {at::ones({2}, at::kFloat)};
    const std::uint64_t before = team->order();
    if (world->rank() == 1) {
      world->give_up(SIGTERM);
    } else {
      try {
        team->sum(value);
        RANK_CHECK(!"the sum returned");
      } catch (const os::Interrupted&) {
        world->give_up(SIGTERM);
      }
    }
    RANK_CHECK(team->order() != before);
    value[0].fill_(1.0);
    team->sum(value);
    RANK_CHECK(value[0][1].item<float>() == 2.0F);
    world->barrier("the end");
  });
  os::Interruption::clear();
}

TEST_CASE("a team of one has everything at once") {
  Team team;
  const Tensor part = row({1, 2}), whole = at::zeros({2}, at::kFloat);
  Pending pending = team.all_gather(whole, part);
  pending.wait();
  CHECK(at::equal(whole, part));
  const Tensor received = at::zeros({2}, at::kFloat);
  team.shift(received, part).wait();
  CHECK(at::equal(received, part));
  CHECK_FALSE(team.begin_sum("nothing to add", {received}).under_way());
  CHECK(at::equal(received, part));
  CHECK(team.order() == team.order());
  World world;
  CHECK(world.convene({0})->size() == 1);
}

TEST_CASE("ranks that do not agree where their tensors are, and those without NCCL, form no team") {
  const support::Environment nccl{"RLALGO_NCCL_LIBRARY", support::fake_nccl},
      cudart{"RLALGO_CUDART_LIBRARY", support::fake_nccl};
  constexpr at::DeviceType gpu = at::kCUDA;
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    RANK_CHECK(support::number_raised_by([&] {
                 (void)world->convene(everybody(*world), at::Device(world->rank() == 0 ? gpu : at::kCPU));
               }) == "distributed.10");
  });
  const support::Environment none("RLALGO_NCCL_LIBRARY", "/nonexistent/libnccl.so.2");
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    RANK_CHECK(support::lacks(support::raised_by([&] { (void)world->convene(everybody(*world), at::Device(gpu)); }),
                              {"distributed.15", "RLALGO_NCCL_LIBRARY"}) == "");
    world->barrier("the end");
  });
}
