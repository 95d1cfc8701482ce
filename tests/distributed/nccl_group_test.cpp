#include <rlalgo/distributed/nccl_group.hpp>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/pickle.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/fake_nccl.hpp>
#include <support/not_run.hpp>

using namespace rlalgo;
using distributed::join_nccl;
using distributed::ProcessGroup;
using distributed::Store;
using support::Environment;

namespace {

constexpr double seconds = 20.0;

std::vector<std::unique_ptr<ProcessGroup>> joined(int size) {
  const Store store = Store::listen("127.0.0.1", 0);
  const auto library = support::fake_library();
  std::vector<std::future<std::unique_ptr<ProcessGroup>>> coming;
  for (int rank = 0; rank < size; ++rank)
    coming.push_back(std::async(std::launch::async, [&, rank] {
      return join_nccl(rank == 0 ? store : Store::connect("127.0.0.1", store.port(), size, seconds), library, rank,
                       size, seconds);
    }));
  std::vector<std::unique_ptr<ProcessGroup>> out;
  for (auto& one : coming) out.push_back(one.get());
  return out;
}

template <class F>
std::string said(const F& act, std::string* told = nullptr) {
  try {
    act();
  } catch (const core::Error& error) {
    if (told != nullptr) *told = error.what();
    return error.room() + "." + std::to_string(error.number());
  }
  return {};
}

}  // namespace

TEST_CASE("a broadcast brings the root's bytes, in every type, from every rank, the same place used again") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const auto ranks = joined(3);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kByte, at::kLong, at::kDouble})
    for (const int root : {0, 1, 2})
      for (const std::int64_t rows : {3, 0, 200}) {
        const tensor::Tensor sent =
            at::arange(rows * 5, at::TensorOptions().dtype(at::kFloat)).reshape({rows, 5}).to(type);
        std::vector<std::future<tensor::Tensor>> got;
        for (int rank = 0; rank < 3; ++rank)
          got.push_back(std::async(std::launch::async, [&, rank] {
            tensor::Tensor place = rank == root ? sent.clone() : tensor::empty({rows, 5}, sent.options());
            ranks[rank]->broadcast(place, root, seconds);
            return place;
          }));
        for (auto& one : got) CHECK(at::equal(one.get(), sent));
      }
  CHECK(ranks[2]->rank() == 2);
  CHECK(ranks[2]->size() == 3);
  tensor::Tensor flags = at::zeros({2}, at::kBool);
  CHECK(said([&] { ranks[0]->broadcast(flags, 0, seconds); }) == "distributed.18");
}

TEST_CASE("sums and barriers of all ranks") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const auto ranks = joined(2);
  auto other = std::async(std::launch::async, [&] {
    tensor::Tensor two = at::full({4}, 2.0, at::kFloat);
    ranks[1]->sum(two, seconds);
    ranks[1]->barrier(seconds);
    tensor::Tensor got = at::zeros({2}, at::kFloat);
    ranks[1]->receive(got, 0, seconds);
    return at::cat({two, got});
  });
  tensor::Tensor one = at::ones({4}, at::kFloat);
  ranks[0]->sum(one, seconds);
  CHECK(at::equal(one, at::full({4}, 3.0, at::kFloat)));
  ranks[0]->barrier(seconds);
  tensor::Tensor sent = at::full({2}, 7.0, at::kFloat);
  ranks[0]->broadcast(sent, 0, seconds);
  CHECK(at::equal(other.get(), at::cat({at::full({4}, 3.0, at::kFloat), sent})));
}

// Run by the next one, in a process of its own.
TEST_CASE("the peer of another process", "[.]") {
  const auto port = static_cast<std::uint16_t>(std::stoi(std::getenv("PEER_PORT")));
  const auto group = join_nccl(Store::connect("127.0.0.1", port, 2, seconds), support::fake_library(), 1, 2, seconds);
  tensor::Tensor tensor = at::full({100}, 3.5, at::kFloat);
  group->broadcast(tensor, 1, seconds);
  ::pause();
}

TEST_CASE("a rank of another process, and what is left when it is killed") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store store = Store::listen("127.0.0.1", 0);
  const Environment port("PEER_PORT", std::to_string(store.port()));
  std::string program = "/proc/self/exe", name = "the peer of another process";
  char* const arguments[] = {program.data(), name.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  const auto group = join_nccl(store, support::fake_library(), 0, 2, 60.0);
  tensor::Tensor tensor = at::zeros({100}, at::kFloat);
  group->broadcast(tensor, 1, seconds);
  CHECK(at::equal(tensor, at::full({100}, 3.5, at::kFloat)));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  const os::Stopwatch watch;
  CHECK(said([&] { group->broadcast(tensor, 1, seconds); }) == "distributed.4");
  CHECK(watch.seconds() < seconds / 2);
}

TEST_CASE("a peer that never comes, at each stage, is given up at the deadline") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const auto library = support::fake_library();
  const os::Stopwatch watch;
  std::string told;
  {  // rank 1 finds no id
    const Store store = Store::listen("127.0.0.1", 0);
    CHECK(said([&] { (void)join_nccl(Store::connect("127.0.0.1", store.port(), 2, seconds), library, 1, 2, 0.3); }) ==
          "distributed.3");
  }
  {  // rank 0 waits in ncclCommInitRank
    const Store store = Store::listen("127.0.0.1", 0);
    CHECK(said([&] { (void)join_nccl(store, library, 0, 2, 0.3); }, &told) == "distributed.3");
    CHECK(told.find("ncclCommInitRank") != std::string::npos);
  }
  {  // rank 1 does, with the id of a rank 0 that is gone
    const Store store = Store::listen("127.0.0.1", 0);
    distributed::abi::UniqueId id;
    REQUIRE(library->nccl().get_unique_id(&id) == 0);
    store.set("broadcast_from/0/0", distributed::pickled_nccl_id({id.bytes, sizeof id.bytes}));
    CHECK(said([&] { (void)join_nccl(Store::connect("127.0.0.1", store.port(), 2, seconds), library, 1, 2, 0.3); }) ==
          "distributed.3");
  }
  auto ranks = joined(2);
  tensor::Tensor tensor = at::zeros({4}, at::kFloat);
  CHECK(said([&] { ranks[0]->broadcast(tensor, 1, 0.3); }, &told) == "distributed.4");
  CHECK(told.find("not done in time") != std::string::npos);
  CHECK(said([&] { ranks[0]->broadcast(tensor, 1, seconds); }, &told) == "distributed.4");
  CHECK(told.find("failed before") != std::string::npos);
  CHECK(said([&] { ranks[1]->broadcast(tensor, 1, seconds); }) == "distributed.4");  // its peer has aborted
  CHECK(watch.seconds() < 10);
}

TEST_CASE("a copy that is under way when the group is left ends before its memory is given back") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  std::vector<std::unique_ptr<ProcessGroup>> ranks = joined(2);
  const Environment slow("FAKE_CUDA_COPY_SECONDS", "1");
  const os::Stopwatch watch;
  CHECK(said([&] {
          tensor::Tensor tensor = at::ones({9}, at::kFloat);
          ranks[0]->broadcast(tensor, 0, 0.1);
        }) == "distributed.4");
  CHECK(watch.seconds() < 0.9);
  ranks.clear();  // the library ends the program otherwise
  CHECK(watch.seconds() > 0.9);
}

TEST_CASE("an operation that another thread gives up ends, and an abort that does not end is left behind") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  auto ranks = joined(2);
  tensor::Tensor tensor = at::zeros({4}, at::kFloat);
  auto waiting = std::async(std::launch::async, [&] { return said([&] { ranks[0]->broadcast(tensor, 1, seconds); }); });
  CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  ranks[0]->stop();
  const os::Stopwatch watch;
  CHECK(waiting.get() == "distributed.4");
  CHECK(watch.seconds() < 5);
  const Environment slow("FAKE_NCCL_ABORT_SECONDS", "30");
  CHECK(said([&] { ranks[1]->broadcast(tensor, 1, 0.1); }) == "distributed.4");
  ranks.clear();
  CHECK(watch.seconds() < 15);  // 5 s for the abort
}

TEST_CASE("operations of different sizes, a call that fails, and an id that is none") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  auto ranks = joined(2);
  auto other = std::async(std::launch::async, [&] {
    tensor::Tensor three = at::zeros({3}, at::kFloat);
    return said([&] { ranks[1]->broadcast(three, 1, seconds); });
  });
  tensor::Tensor four = at::zeros({4}, at::kFloat);
  std::string told;
  CHECK(said([&] { ranks[0]->broadcast(four, 1, seconds); }, &told) == "distributed.4");
  CHECK(told.find("invalid usage") != std::string::npos);
  CHECK(other.get() == "distributed.4");

  const auto library = support::fake_library();
  {
    const Environment broken("FAKE_NCCL_INIT_ERROR", "5");
    const Store store = Store::listen("127.0.0.1", 0);
    CHECK(said([&] { (void)join_nccl(store, library, 0, 2, seconds); }, &told) == "distributed.18");
    CHECK(told.find("ncclCommInitRankConfig, rank 0 of 2") != std::string::npos);
    CHECK(told.find("of the fake library") != std::string::npos);
  }
  // What NCCL finds while the ranks meet: a refusal, with its own words, or a connection that ended.
  for (const auto& [error, number] :
       {std::pair("5", "distributed.18"), {"1", "distributed.18"}, {"6", "distributed.3"}}) {
    const Environment broken("FAKE_NCCL_JOIN_ERROR", error);
    const Store store = Store::listen("127.0.0.1", 0);
    CHECK(said([&] { (void)join_nccl(store, library, 0, 2, seconds); }, &told) == number);
    if (number == std::string("distributed.18")) {
      CHECK(told.find("ncclCommInitRank, rank 0 of 2") != std::string::npos);
      CHECK(told.find("of the fake library") != std::string::npos);
    }
  }
  const Store store = Store::listen("127.0.0.1", 0);
  CHECK(said([&] { (void)join_nccl(store, library, 0, 2, seconds, 5); }) == "distributed.18");  // no such device
  store.set("broadcast_from/0/0", "nonsense");
  CHECK(said([&] { (void)join_nccl(Store::connect("127.0.0.1", store.port(), 2, seconds), library, 1, 2, seconds); }) ==
        "distributed.19");
}
