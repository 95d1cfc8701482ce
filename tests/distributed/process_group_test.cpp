#include <rlalgo/distributed/process_group.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using distributed::join_gloo;
using distributed::Store;

namespace {

constexpr double seconds = 20.0;
const auto never = [] { return false; };

// Both ends of a group of two, of this process: rank 0 has the store.
struct Pair {
  std::unique_ptr<distributed::ProcessGroup> first, second;

  explicit Pair(double patience = seconds) {
    const Store store = Store::listen("127.0.0.1", 0);
    auto other = std::async(std::launch::async, [&] {
      return join_gloo(Store::connect("127.0.0.1", store.port(), 2, patience), 1, 2, patience);
    });
    store.wait_for_peer(patience, never);
    first = join_gloo(store, 0, 2, patience);
    second = other.get();
  }
};

}  // namespace

TEST_CASE("who takes a connection and says nothing is no store, and is told so in time") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener, 4) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::uint16_t port = ntohs(address.sin_port);
  const os::Stopwatch watch;
  CHECK(support::lacks(support::raised_by([&] { (void)Store::connect("127.0.0.1", port, 2, 0.3); }),
                       {"distributed.3", "127.0.0.1:" + std::to_string(port)}) == "");
  CHECK(watch.seconds() < 15.0);
  ::close(listener);
}

TEST_CASE("a broadcast brings the root's bytes, whatever their type and shape") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Pair pair;
  CHECK(pair.first->rank() == 0);
  CHECK(pair.second->rank() == 1);
  CHECK(pair.first->size() == 2);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kByte})
    for (const int root : {0, 1}) {
      const std::vector<std::int64_t> shape = {3, 5};
      tensor::Tensor sent = at::arange(15, at::TensorOptions().dtype(at::kFloat)).reshape(shape).to(type);
      tensor::Tensor got = tensor::empty(shape, at::TensorOptions().dtype(type));
      auto& from = root == 0 ? pair.first : pair.second;
      auto& to = root == 0 ? pair.second : pair.first;
      auto sending = std::async(std::launch::async, [&] { from->broadcast(sent, root, seconds); });
      to->broadcast(got, root, seconds);
      sending.get();
      CHECK(at::equal(sent, got));
    }
  auto other = std::async(std::launch::async, [&] { pair.second->barrier(seconds); });
  pair.first->barrier(seconds);
  other.get();
}

TEST_CASE("a peer that sends another number of bytes than was expected is told from one that does not") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const auto heard = [](std::int64_t sent_count) {
    Pair pair;
    tensor::Tensor sent = at::ones({sent_count}), place = at::zeros({8});
    auto sending = std::async(std::launch::async, [&] { pair.second->broadcast(sent, 1, seconds); });
    const std::string raised = support::number_raised_by([&] { pair.first->receive(place, 4096, seconds); });
    sending.get();
    return raised == "nothing" ? std::to_string(place.sum().item<double>()).substr(0, 1) : raised;
  };
  CHECK(heard(8) == "8");
  CHECK(heard(7) == "distributed.5");
  CHECK(heard(1) == "distributed.5");
  CHECK(heard(9) == "distributed.5");
  CHECK(heard(1024) == "distributed.5");
}

TEST_CASE("who does not come, does not answer or is gone is an error in time") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  const Store lonely = Store::listen("127.0.0.1", 0);
  os::Stopwatch clock;
  CHECK(support::number_raised_by([&] { lonely.wait_for_peer(0.2, never); }) == "distributed.3");
  CHECK(support::number_raised_by([&] { lonely.wait_for_peer(1000, [] { return true; }); }) == "distributed.3");
  CHECK(support::number_raised_by([&] { (void)join_gloo(lonely, 0, 2, 0.3); }) == "distributed.3");
  CHECK(clock.seconds() < 10.0);

  Pair pair;
  tensor::Tensor place = at::zeros({4});
  clock = {};
  CHECK(support::number_raised_by([&] { pair.first->broadcast(place, 1, 0.5); }) == "distributed.4");
  CHECK(clock.seconds() < 10.0);

  Pair widow;
  widow.second.reset();
  clock = {};
  CHECK(support::number_raised_by([&] { widow.first->broadcast(place, 1, seconds); }) == "distributed.4");
  CHECK(clock.seconds() < seconds / 2);
}

TEST_CASE("a port has one store at a time, and is free when the store is gone") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  std::uint16_t port = 0;
  {
    const Store store = Store::listen("127.0.0.1", 0);
    port = store.port();
    CHECK(support::number_raised_by([&] { (void)Store::listen("127.0.0.1", port); }) == "distributed.2");
    CHECK(support::number_raised_by([&] { (void)Store::listen("256.1.1.1", 0); }) == "distributed.2");
  }
  CHECK(Store::listen("127.0.0.1", port).port() == port);
}
