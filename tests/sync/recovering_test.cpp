#include <rlalgo/sync/recovering.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/asynchronous.hpp>

using namespace rlalgo;

namespace {

// A server with its weights: started anew, it has none, and says so as a version of its own, or breaks the connection.
struct Server {
  std::atomic<std::int64_t> has{-1};
  std::atomic<int> handed_over{0}, refused{0};
  std::atomic<bool> up{true};
};

struct Asking {
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;
  Server* server;
  std::shared_ptr<sync::WeightGate> gate;
  bool tells = true;          // the version
  int restarts = 0;           // in the next calls
  bool breaks = false;        // the call with it
  bool breaks_quiet = false;  // and is repeated by the client

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    if (restarts > 0) {
      --restarts;
      server->has = -1;
      if (breaks_quiet || breaks) gate->doubt();
      if (breaks) core::raise("http", 1, {.what = "broken"});
    }
    std::vector<std::vector<data::Completion>> out(requests.size());
    for (auto& group : out) {
      group.emplace_back();
      group[0].ids = {static_cast<data::TokenId>(server->has)};
      group[0].weights_version = tells ? server->has.load() : -1;
    }
    return out;
  }
};

struct Handing {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  Server* server;
  std::int64_t known = -1;
  sync::Published publish(std::int64_t version) {
    if (version == known) return {.version = version};
    if (server->refused > 0) {
      --server->refused;
      core::raise("http", 2, {.what = "no such session"});
    }
    ++server->handed_over;
    server->has = known = version;
    return {.version = version, .status = sync::Published::Status::sent};
  }
  static constexpr sync::Hooks hooks{.forget = true};
  void forget() { known = -1; }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{-7}; };
  }
};

}  // namespace

TEST_CASE("a server that was started anew gets its weights again before anything that it generates is used") {
  for (const bool erased : {false, true})
    for (const int how : {0, 1, 2})  // it says another version; its connection breaks; the client has asked again
      for (const bool asynchronous : {false, true}) {
        INFO("how " << how << " asynchronous " << asynchronous);
        Server server;
        const sync::Asynchronous shared{.exclusive = true};
        Asking asking{&server, shared.gate, how == 0};
        auto generator = sync::asynchronous_generator(asking, shared);
        std::function<sync::Published(std::int64_t)> publish;
        if (erased) {
          publish = [policy = sync::AnySync(sync::asynchronous_sync(sync::AnySync(Handing{&server}), shared))](
                        std::int64_t v) mutable { return policy.publish(v); };
        } else {
          publish = [policy = sync::asynchronous_sync(Handing{&server}, shared)](std::int64_t v) mutable {
            return policy.publish(v);
          };
        }
        publish(5);
        const std::vector<inference::Request> requests(2);
        CHECK(generator.generate(requests, {}, {})[1][0].ids[0] == 5);
        asking.restarts = 1;
        asking.breaks = how == 1;
        asking.breaks_quiet = how == 2;
        std::vector<std::vector<data::Completion>> out;
        std::atomic<bool> done{false};
        const auto call = [&] {
          out = generator.generate(requests, {}, {});
          done = true;
        };
        if (asynchronous) {
          std::thread producer(call);
          std::this_thread::sleep_for(std::chrono::milliseconds(60));
          CHECK_FALSE(done);  // the trainer's tensors are the trainer's
          CHECK(server.handed_over == 1);
          while (!done) shared.meanwhile(6);
          producer.join();
          CHECK(out[1][0].ids[0] == 6);
          CHECK(out[1][0].weights_version == 6);
        } else {
          call();
          CHECK(out[1][0].ids[0] == 5);
        }
        CHECK(server.handed_over == 2);
        CHECK_FALSE(shared.gate->lost());
        publish(6);  // what is in force is not sent again
        CHECK(server.handed_over == (asynchronous ? 2 : 3));
      }
}

namespace {

struct Late {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  Server* server;
  sync::Published publish(std::int64_t) {
    ++server->handed_over;
    core::raise("http", 1, {.what = "the deadline passed"});
  }
  static constexpr sync::Hooks hooks{.forget = true};
  void forget() {}
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{-7}; };
  }
};

}  // namespace

TEST_CASE("a server that lets a deadline pass was not started anew: nothing is repeated") {
  Server server;
  const sync::Asynchronous shared{.exclusive = true};
  auto policy = sync::asynchronous_sync(Late{&server}, shared);
  shared.gate->doubt();  // of a call before
  CHECK_THROWS_WITH(policy.publish(3), Catch::Contains("[rlalgo.http.1]"));
  CHECK(server.handed_over == 1);

  const sync::Asynchronous quiet{.exclusive = true};
  Server other;
  auto handing = sync::asynchronous_sync(Handing{&other}, quiet);
  handing.publish(5);
  struct Silent : Asking {
    std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request>,
                                                        const inference::SamplingConfig&, inference::DrawKey) {
      core::raise("http", 1, {.what = "the deadline passed"});
    }
  };
  Silent silent{{&other, quiet.gate}};
  auto generator = sync::asynchronous_generator(silent, quiet);
  const std::vector<inference::Request> requests(1);
  CHECK_THROWS_WITH(generator.generate(requests, {}, {}), Catch::Contains("[rlalgo.http.1]"));
  CHECK(other.handed_over == 1);
}

TEST_CASE(
    "a server that is lost while weights are handed over gets them from the beginning, and a refusal that stays is "
    "told") {
  Server server;
  auto policy = sync::asynchronous_sync(Handing{&server}, {.exclusive = true});
  server.refused = 1;
  policy.publish(3);
  CHECK(server.has == 3);
  server.refused = 2;
  CHECK_THROWS_WITH(policy.publish(4), Catch::Contains("[rlalgo.http.2]"));
}

TEST_CASE("a server that loses its weights again and again ends the call, and a stop ends the wait for the trainer") {
  Server server;
  std::stop_source stop;
  const sync::Asynchronous shared{.gate = std::make_shared<sync::WeightGate>(stop.get_token()), .exclusive = true};
  Asking asking{&server, shared.gate};
  auto generator = sync::asynchronous_generator(asking, shared);
  auto policy = sync::asynchronous_sync(Handing{&server}, shared);
  policy.publish(1);
  const std::vector<inference::Request> requests(1);
  (void)generator.generate(requests, {}, {});
  asking.restarts = 100;
  CHECK_THROWS_WITH(generator.generate(requests, {}, {}), Catch::Contains("[rlalgo.sync.4]"));
  CHECK(asking.restarts == 96);
  asking.breaks = true;
  CHECK_THROWS_WITH(generator.generate(requests, {}, {}), Catch::Contains("[rlalgo.http.1]"));
  std::atomic<bool> given_up{false};
  std::thread producer([&] {
    try {
      (void)generator.generate(requests, {}, {});
    } catch (const os::Interrupted&) {
      given_up = true;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  stop.request_stop();
  producer.join();
  CHECK(given_up);
}

TEST_CASE("sharded weights that are lost while all ranks wait for a generation are refused by name") {
  Server server;
  const sync::Asynchronous shared{.exclusive = true, .publishers = {.sources = std::make_shared<distributed::World>()}};
  auto policy = sync::asynchronous_sync(Handing{&server}, shared);
  policy.publish(1);
  shared.meanwhile(1);  // nothing is lost
  shared.gate->lose();
  CHECK_THROWS_WITH(shared.meanwhile(1), Catch::Contains("[rlalgo.sync.11]"));
  policy.publish(2);  // all ranks take part
  CHECK_FALSE(shared.gate->lost());
}
