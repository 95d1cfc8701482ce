#include <rlalgo/sync/fetched_weights.hpp>

#include <stdexcept>
#include <string>

#include <rlalgo/sync/any_sync.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

// A server that takes weights while they can be fetched.
struct Server {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  std::string* calls;
  const bool* fetching;
  std::int64_t version = -1;

  sync::Published publish(std::int64_t next) {
    if (next == version) return {.version = version};
    *calls += *fetching ? "push " : "nothing ";
    if (next == 13) throw std::runtime_error("refused");
    version = next;
    return {.version = next, .status = sync::Published::Status::sent, .bytes = 4};
  }
  static constexpr sync::Hooks hooks{.forget = true};
  void forget() { version = -1; }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [this] { return version; };
  }
};

}  // namespace

TEST_CASE("weights are fetched for the publishes that send some, and for no other") {
  std::string calls;
  bool fetching = false;
  sync::FetchedWeights sync(Server{&calls, &fetching}, [&](const std::function<void()>& use) {
    calls += "fetch ";
    fetching = true;
    const struct End {
      bool& fetching;
      ~End() { fetching = false; }
    } end{fetching};
    use();
    calls += "return ";
  });
  static_assert(decltype(sync)::reaches(inference::WeightSource::remote));
  static_assert(!decltype(sync)::reaches(inference::WeightSource::shared));
  CHECK(sync.publish(1).status == sync::Published::Status::sent);
  CHECK(calls == "fetch push return ");
  CHECK(sync.publish(1).status == sync::Published::Status::unchanged);
  CHECK(calls == "fetch push return ");
  sync.forget();
  CHECK(sync.publish(1).bytes == 4);
  CHECK(calls == "fetch push return fetch push return ");
  CHECK(sync.version_source()() == 1);
  CHECK_THROWS_AS(sync.publish(13), std::runtime_error);
  CHECK_FALSE(fetching);
  CHECK(sync.version_source()() == 1);
}
