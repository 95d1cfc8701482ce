// Teams of ranks with a GPU each: NCCL's stand-in over the memory and the streams of the far device.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/streams.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/far_device.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::Pending;
using distributed::SumOrder;
using distributed::Team;
using distributed::World;
using support::everybody;
using tensor::Tensor;

namespace {

struct OverNccl {
  support::Environment nccl{"RLALGO_NCCL_LIBRARY", support::fake_nccl};
  support::Environment cudart{"RLALGO_CUDART_LIBRARY", support::fake_nccl};
  OverNccl() {
    (void)support::far::device();
    support::access_through([](void (*task)(void*), void* given) { support::far::reach([&] { task(given); }); });
    support::far::use_streams(::dlopen(support::fake_nccl, RTLD_NOW));
  }
};

// Ranks that are threads, each with a stream of its own.
void with_ranks(int ranks, const std::function<void(const std::shared_ptr<World>&)>& body, double seconds = 20.0) {
  support::with_ranks(
      ranks,
      [&](const std::shared_ptr<World>& world) {
        const tensor::OwnStream own(support::far::device());
        body(world);
      },
      seconds);
}

Tensor there(const Tensor& here) { return here.to(support::far::device()); }
Tensor here(const Tensor& there) { return there.to(at::kCPU); }
Tensor full(std::vector<std::int64_t> shape, double value, at::ScalarType type) {
  return there(at::full(shape, value, type));
}

std::shared_ptr<Team> team_of_all(World& world) { return world.convene(everybody(world), support::far::device()); }

}  // namespace

TEST_CASE("a team on GPUs hands tensors round over NCCL, in any type, with and without something for everybody") {
  const OverNccl nccl;
  for (const int ranks : {2, 3})
    with_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const auto team = team_of_all(*world);
      RANK_CHECK(team->device() == support::far::device());
      const auto own = static_cast<float>(world->rank());
      const Tensor whole = full({2 * ranks}, 0, at::kFloat),
                   sent = there(at::arange(ranks, at::kFloat).add_(10.0 * own));
      const Tensor received = full({ranks}, 0, at::kFloat), part = there(at::tensor({own, own + 0.5F}));
      Pending first = team->all_gather(whole, part), second = team->all_to_all(received, sent);
      second.wait();
      first.wait();
      for (int r = 0; r < ranks; ++r) {
        RANK_CHECK(here(whole)[2 * r + 1].item<float>() == static_cast<float>(r) + 0.5F);
        RANK_CHECK(here(received)[r].item<float>() == 10.0F * static_cast<float>(r) + own);
      }
      const auto before = (world->rank() + ranks - 1) % ranks;
      const Tensor piece = full({world->rank(), 3}, own, at::kBFloat16);  // rank 0 sends nothing
      const Tensor from_before = full({before, 3}, 0, at::kBFloat16);
      team->shift(from_before, piece).wait();
      RANK_CHECK(at::equal(here(from_before), at::full({before, 3}, before, at::kBFloat16)));
      // One rank alone gets something: the others have no part in it, and go on.
      std::vector<Tensor> out(static_cast<std::size_t>(ranks)), in(static_cast<std::size_t>(ranks));
      const Tensor word = full({5}, own, at::kLong), answer = full({5}, 0, at::kLong);
      if (world->rank() == 1) out[0] = word;
      if (world->rank() == 0) in[1] = answer;
      team->exchange("a word", out, in).wait();
      if (world->rank() == 0) RANK_CHECK(at::equal(here(answer), at::ones({5}, at::kLong)));
      // Tensors of the CPU come by themselves, and have arrived; not together with the GPU's.
      std::vector<Tensor> count = {at::full({2}, own, at::kLong)};
      const Tensor counts = at::zeros({ranks, 2}, at::kLong);
      team->all_gather(counts, count.front().view({1, 2})).wait();
      RANK_CHECK(counts[ranks - 1][1].item<std::int64_t>() == ranks - 1);
      std::vector<Tensor> mixed = {at::zeros({1}), full({1}, 0, at::kFloat)};
      RANK_CHECK(support::number_raised_by([&] { team->sum(mixed); }) == "distributed.11");
      world->barrier("the end");
    });
}

TEST_CASE("a sum over NCCL has the bits of Gloo's, in the order of the ranks; or NCCL's, the same on all ranks") {
  const OverNccl nccl;
  const float own[] = {0.1F, 1e9F, -1e9F};
  const float in_order = (0.1F + 1e9F) + -1e9F,
              reversed = (-1e9F + 1e9F) + 0.1F;  // the stand-in begins with the last rank
  for (const SumOrder order : {SumOrder::ranks, SumOrder::library})
    with_ranks(3, [&](const std::shared_ptr<World>& world) {
      world->set_sum_order(order);
      const float expected = order == SumOrder::ranks ? in_order : reversed;
      const auto mine = own[world->rank()];
      for (const bool on_gpu : {false, true}) {
        const auto team = world->convene(everybody(*world), on_gpu ? support::far::device() : at::Device(at::kCPU));
        RANK_CHECK(team->sums_natively() == (on_gpu && order == SumOrder::library));
        const auto at_home = [&](const Tensor& one) { return on_gpu ? there(one) : one; };
        std::vector<Tensor> tensors = {
            at_home(at::full({2, 2}, mine, at::kFloat)),     at_home(at::ones({7}, at::kBFloat16)),
            at_home(at::full({7 << 20}, mine, at::kFloat)),  at_home(at::full({1}, 0.1 * world->rank(), at::kDouble)),
            at_home(at::full({2, 3}, mine, at::kFloat)).t(), at_home(at::zeros({0}, at::kFloat))};
        team->sum(tensors);
        const float sum = on_gpu ? expected : in_order;
        RANK_CHECK(here(tensors[0])[1][1].item<float>() == sum);
        RANK_CHECK(at::equal(here(tensors[1]), at::full({7}, 3.0, at::kBFloat16)));
        RANK_CHECK(at::equal(here(tensors[2]), at::full({7 << 20}, sum, at::kFloat)));
        RANK_CHECK(std::abs(here(tensors[3]).item<double>() - 0.3) < 1e-15);
        RANK_CHECK(at::equal(here(tensors[4]), at::full({3, 2}, sum, at::kFloat)));
        if (!team->sums_natively()) {
          RANK_CHECK(support::number_raised_by([&] { (void)team->add_shards(tensors[0], tensors[0]); }) ==
                     "distributed.11");
          continue;
        }
        const Tensor sent = there(at::full({6}, mine, at::kFloat)), shard = full({2}, 0, at::kFloat);
        team->add_shards(shard, sent).wait();
        RANK_CHECK(at::equal(here(shard), at::full({2}, reversed, at::kFloat)));
        RANK_CHECK(support::number_raised_by([&] { (void)team->add_shards(sent, sent); }) == "distributed.11");
      }
      world->barrier("the end");
    });
}

TEST_CASE("the host goes on while operations are under way, and what it computes comes behind them") {
  const OverNccl nccl;
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    world->set_sum_order(
        SumOrder::library);  // arithmetic on a stream of the far device's keeps the thread that gives it
    const auto team = team_of_all(*world);
    const Tensor sum = full({4}, 1.0 + world->rank(), at::kFloat);
    world->barrier("both begin");
    const auto before = support::far::counts();
    world->barrier("counted");
    if (world->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    const os::Stopwatch watch;
    Pending pending = team->begin_sum("a sum", {sum});
    pending.wait();
    Pending next = team->begin_sum("another", {sum});  // of what the one before gives
    next.wait();
    if (world->rank() == 0) RANK_CHECK(watch.seconds() < 0.3);  // the other rank has not come
    const Tensor doubled = sum.mul(2.0);
    RANK_CHECK(at::equal(here(doubled), at::full({4}, 12.0, at::kFloat)));
    RANK_CHECK(support::far::counts().since(before).waits == 0);
    world->check();
    for (const os::Stopwatch waited; team->busy() == 0.0 && waited.seconds() < 5.0;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    RANK_CHECK(team->busy() > 0.0);
    world->barrier("the end");
  });
}

TEST_CASE("a rank leaves a team when the network has what it sent, and gives up where that fails") {
  const OverNccl nccl;
  const support::ScratchDirectory scratch;
  const std::string file = scratch.path() / "left";
  const support::Environment left("FAKE_NCCL_LEFT", file);
  for (const bool fails : {false, true}) {
    std::filesystem::remove(file);
    const support::Environment broken("FAKE_NCCL_FINALIZE_ERROR", fails ? "3" : "");
    with_ranks(2, [&](const std::shared_ptr<World>& world) {
      const Tensor received = full({2}, 0, at::kFloat);
      auto team = team_of_all(*world);
      team->shift(received, full({2}, 3.0, at::kFloat)).wait();
      team.reset();
      RANK_CHECK(at::equal(here(received), at::full({2}, 3.0, at::kFloat)));
      world->barrier("the end");
    });
    std::ifstream in(file);
    std::multiset<std::string> words{std::istream_iterator<std::string>(in), {}};
    const std::string end = fails ? "abort" : "destroy";
    CHECK(words == std::multiset<std::string>{"finalize", "finalize", end, end});
  }
}

TEST_CASE("an operation that will not end is aborted: a rank that waits for its numbers goes on, and is told why") {
  const OverNccl nccl;
  std::string said;
  CHECK_THROWS(with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto team = team_of_all(*world);
    world->enter(3);
    if (world->rank() == 1) throw std::runtime_error("no idea");
    const os::Stopwatch watch;
    const Tensor whole = full({2}, 0, at::kFloat);
    team->all_gather(whole, full({1}, 1, at::kFloat)).wait();
    (void)here(whole);  // hangs where nobody aborts
    said = support::raised_by([&] { world->check(); });
    if (watch.seconds() > 10) throw std::runtime_error("it took too long");
  }));
  CHECK(support::lacks(said, {"distributed.8", "rank 1 failed", "no idea", "step 3"}) == "");

  std::promise<void> over;
  const std::shared_future<void> ended = over.get_future().share();
  const distributed::Store store = distributed::Store::listen("127.0.0.1", 0);
  const distributed::Place first{.rank = 0, .size = 2, .host = "127.0.0.1", .port = store.port(), .hosted = true};
  auto other = std::async(std::launch::async, [&, second = first]() mutable {
    second.rank = 1;
    auto world = distributed::join_world(second, 0.6);
    world->set_sum_order(SumOrder::library);
    auto team = team_of_all(*world);
    ended.wait();  // it is there, and does not come
    return team->size();
  });
  {
    const tensor::OwnStream own(support::far::device());
    const auto world = distributed::join_world(first, 0.6);
    world->set_sum_order(SumOrder::library);
    const auto team = team_of_all(*world);
    std::vector<Tensor> value = {full({1}, 1, at::kFloat)};
    team->sum(value);
    // A rank that computes is waited for.
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    CHECK_NOTHROW(world->check());
    over.set_value();
    CHECK(other.get() == 2);  // its connections are closed
    (void)here(value[0]);
    CHECK(support::lacks(support::raised_by([&] { world->check(); }), {"distributed.4", "sum"}) == "");
    CHECK(support::lacks(support::raised_by([&] { team->sum(value); }), {"distributed.4"}) == "");
  }
}

TEST_CASE("a team on GPUs goes on after its ranks gave up what was under way") {
  const OverNccl nccl;
  os::Interruption::clear();
  with_ranks(2, [&](const std::shared_ptr<World>& world) {
    world->set_sum_order(SumOrder::library);
    const auto team = team_of_all(*world);
    std::vector<Tensor> value = {full({2}, 1, at::kFloat)};
    const std::uint64_t before = team->order();
    if (world->rank() == 1) {
      world->give_up(SIGTERM);
    } else {
      Pending pending = team->begin_sum("never ends", value);
      pending.wait();
      (void)here(value[0]);
      RANK_CHECK(support::lacks(support::raised_by([&] { world->check(); }), {"os.8"}) == "");
      world->give_up(SIGTERM);
    }
    RANK_CHECK(team->order() != before);
    value[0].fill_(1.0);
    team->sum(value);
    RANK_CHECK(here(value[0])[1].item<float>() == 2.0F);
    world->check();
    world->barrier("the end");
  });
  os::Interruption::clear();
}
