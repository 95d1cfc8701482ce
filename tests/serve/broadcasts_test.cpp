#include <rlalgo/serve/broadcasts.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using distributed::ProcessGroup;
using distributed::Store;

namespace {

constexpr double seconds = 20.0;

// What an act said: "" or the number of its error.
std::string said(const std::exception_ptr& failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const core::Error& error) {
    return error.room() + "." + std::to_string(error.number());
  }
  return {};
}

struct Bench {
  std::shared_ptr<model::Decoder> decoder = served::decoder();
  serve::Engine engine{decoder->config(), {.engine = {.threads = 1}}, {}};
  serve::WeightStore store{decoder, engine};
  std::vector<std::pair<std::string, tensor::Tensor>> own = store.named_tensors();
  serve::Broadcasts broadcasts;
  serve::Broadcasts::Transport transport = serve::Broadcasts::Transport::gloo;
  std::uint16_t port = Store::listen("127.0.0.1", 0).port();
  std::unique_ptr<ProcessGroup> trainer;  // its end

  explicit Bench(double patience = 60.0, double allowed = seconds)
      : broadcasts(store, {.address = "127.0.0.1", .seconds = allowed, .patience = patience}) {}

  // What an act says, which `begin` is given as its Done.
  template <class F>
  static std::string answer(const F& begin) {
    const auto answered = std::make_shared<std::promise<std::string>>();
    try {
      begin([answered](const std::exception_ptr& failure) { answered->set_value(said(failure)); });
    } catch (const core::Error&) {
      return said(std::current_exception());
    }
    auto future = answered->get_future();
    return future.wait_for(std::chrono::seconds(60)) == std::future_status::ready ? future.get() : "no answer";
  }
  std::string open() {
    return answer([&](auto done) { broadcasts.open(port, transport, done); });
  }
  std::string fence() {
    return answer([&](auto done) { broadcasts.fence(done); });
  }
  std::string close() {
    return answer([&](auto done) { broadcasts.close(done); });
  }
  std::string announce(const std::vector<serve::AnnouncedTensor>& tensors) {
    return answer([&](auto done) { broadcasts.announce(tensors, done); });
  }
  void connect() {
    CHECK(open().empty());
    trainer = join_gloo(Store::connect("127.0.0.1", port, 2, seconds), 1, 2, seconds);
  }
  // One list as TRL's client sends it: announced, broadcast, and a barrier.
  void send(const std::vector<std::pair<std::string, tensor::Tensor>>& tensors) {
    std::vector<serve::AnnouncedTensor> list;
    for (const auto& [name, value] : tensors) list.push_back({name, value.scalar_type(), value.sizes().vec()});
    REQUIRE(announce(list).empty());
    for (const auto& [name, value] : tensors) {
      tensor::Tensor sent = value.contiguous();
      trainer->broadcast(sent, 1, seconds);
    }
    trainer->barrier(seconds);
  }
  [[nodiscard]] std::vector<std::pair<std::string, tensor::Tensor>> doubled() const {
    std::vector<std::pair<std::string, tensor::Tensor>> out;
    for (const auto& [name, value] : own) out.emplace_back(name, value.detach().mul(2).contiguous());
    return out;
  }
  // How many times its own values each tensor that is served has; 0 where they differ in that.
  [[nodiscard]] double scale() const {
    const auto now = store.named_tensors();
    const double first = (now[0].second.sum() / own[0].second.sum()).item<double>();
    for (std::size_t i = 0; i < own.size(); ++i)
      if (!at::allclose(now[i].second, own[i].second * first)) return 0;
    return std::round(first);
  }
};

}  // namespace

TEST_CASE("TRL's updates are in force when the last tensor has come, and before its barrier is passed") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  bench.connect();
  for (const auto& one : bench.doubled()) {
    CHECK(bench.store.version() == 0);
    bench.send({one});
  }
  CHECK(bench.scale() == 2);
  CHECK(bench.store.version() == 1);
  CHECK(bench.fence().empty());
  CHECK(bench.store.version() == 1);  // it was in force already
  bench.send(bench.doubled());        // axolotl's: all of them in one list, with one barrier
  CHECK(bench.store.version() == 2);
}

TEST_CASE("some of the tensors are in force at the fence, and forgotten without it") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  bench.connect();
  const tensor::Tensor norm = at::full({bench.decoder->config().hidden_size}, 3.0, at::kBFloat16);
  bench.send({{"model.norm.weight", norm}});
  CHECK(bench.store.version() == 0);
  CHECK(bench.fence().empty());
  CHECK(bench.store.version() == 1);
  CHECK(bench.store.named_tensors().size() == bench.own.size());
  for (const auto& [name, value] : bench.store.named_tensors())
    if (name == "model.norm.weight") CHECK(value.sum().item<double>() == 3.0 * static_cast<double>(norm.numel()));
  bench.send({{"model.norm.weight", norm}});
  CHECK(bench.close().empty());
  CHECK(bench.fence().empty());
  CHECK(bench.store.version() == 1);
}

TEST_CASE("what does not fit is refused before its broadcast, and the next one goes on") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  CHECK(bench.announce({{"model.norm.weight", at::kFloat, {64}}}) == "serve.20");
  bench.connect();
  const std::vector<std::int64_t> shape = {bench.decoder->config().hidden_size};
  CHECK(bench.announce({{"nobody", at::kFloat, shape}}) == "serve.19");
  CHECK(bench.announce({{"model.norm.weight", at::kFloat, {1}}}) == "serve.19");
  CHECK(bench.announce({{"model.norm.weight", at::kFloat, shape}, {"model.norm.weight", at::kFloat, shape}}) ==
        "serve.19");
  bench.send(bench.doubled());
  CHECK(bench.scale() == 2);
}

TEST_CASE("a trainer that dies, or sends what it did not announce, leaves the old weights") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  bench.connect();
  const auto doubled = bench.doubled();
  bench.send({doubled[0]});
  REQUIRE(bench.announce({{doubled[1].first, at::kFloat, doubled[1].second.sizes().vec()}}).empty());
  os::Stopwatch clock;
  bench.trainer.reset();
  CHECK(bench.fence() == "serve.27");
  CHECK(clock.seconds() < seconds / 2);
  CHECK(bench.fence().empty());  // told once
  CHECK(bench.announce({{doubled[1].first, at::kFloat, doubled[1].second.sizes().vec()}}) == "serve.20");
  CHECK(bench.store.version() == 0);

  bench.connect();  // at once: the dead one's place is free
  REQUIRE(bench.announce({{doubled[0].first, at::kFloat, doubled[0].second.sizes().vec()}}).empty());
  tensor::Tensor other = at::ones({3});
  bench.trainer->broadcast(other, 1, seconds);
  CHECK(bench.announce({{doubled[0].first, at::kFloat, doubled[0].second.sizes().vec()}}) == "serve.27");
  CHECK(bench.scale() == 1);

  CHECK(bench.close().empty());
  bench.connect();
  bench.send(doubled);
  CHECK(bench.scale() == 2);
}

TEST_CASE("a trainer that says nothing is given up after its time, and a second one waits for the first") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench(60.0, 0.5);
  CHECK(bench.open().empty());
  CHECK(bench.open() == "serve.20");
  CHECK(bench.fence() == "serve.27");  // nobody came in half a second
  bench.connect();
  CHECK(bench.open() == "serve.20");
  const auto& [name, value] = bench.own[0];
  REQUIRE(bench.announce({{name, at::kFloat, value.sizes().vec()}}).empty());
  CHECK(bench.fence() == "serve.27");
  CHECK(bench.scale() == 1);

  Bench hasty(0.0);
  hasty.connect();
  hasty.connect();  // the place of one that is silent for no time at all is free
  hasty.send(hasty.doubled());
  CHECK(hasty.scale() == 2);
  const Store taken = Store::listen("127.0.0.1", 0);
  Bench blocked;
  blocked.port = taken.port();
  CHECK(blocked.open() == "distributed.2");
  blocked.port = Store::listen("127.0.0.1", 0).port();
  CHECK(blocked.open().empty());
}

TEST_CASE("vLLM's lists come from the trainer that has the store, one by one or packed") {
  support::needs(distributed::gloo_built(), support::without_gloo);
  Bench bench;
  const auto refused = [&] {
    return Bench::answer([&](auto done) {
      bench.broadcasts.receive(
          {}, 0, [](auto) {}, done);
    });
  };
  CHECK(refused() == "serve.20");
  const Store store = Store::listen("127.0.0.1", 0);
  auto joined = std::async(std::launch::async, [&] {
    return Bench::answer([&](auto done) {
      bench.broadcasts.join({.host = "127.0.0.1", .port = store.port(), .packed_bytes = 1000}, done);
    });
  });
  const auto trainer = join_gloo(store, 0, 2, seconds);
  CHECK(joined.get().empty());

  auto sent = bench.doubled();
  sent[1].second = sent[1].second.to(at::kBFloat16);  // what follows begins at an odd place of the buffer
  std::vector<serve::AnnouncedTensor> list;
  for (const auto& [name, value] : sent) list.push_back({name, value.scalar_type(), value.sizes().vec()});
  for (const std::optional<std::size_t> packed : {std::optional<std::size_t>(0), std::optional<std::size_t>()}) {
    std::promise<std::vector<model::NamedTensor>> got;
    bench.broadcasts.receive(
        list, packed, [&](auto tensors) { got.set_value(std::move(tensors)); },
        [&](const std::exception_ptr& failure) { got.set_exception(failure); });
    tensor::Tensor buffer = at::empty({0}, at::kByte);
    for (const auto& [name, value] : sent) {
      const tensor::Tensor bytes = value.contiguous().view({-1}).view(at::kByte);
      buffer = at::cat({buffer, bytes});
      if (packed || buffer.numel() > 1000 || name == sent.back().first) {
        trainer->broadcast(buffer, 0, seconds);
        buffer = at::empty({0}, at::kByte);
      }
    }
    const auto tensors = got.get_future().get();
    REQUIRE(tensors.size() == sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      CHECK(tensors[i].first == sent[i].first);
      CHECK(at::equal(tensors[i].second, sent[i].second));
    }
  }
}
