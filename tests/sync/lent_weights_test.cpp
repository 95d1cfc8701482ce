#include <rlalgo/sync/lent_weights.hpp>

#include <stdexcept>
#include <string>

#include <rlalgo/sync/any_sync.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

// A server that takes weights while they are lent.
struct Server {
  static constexpr bool reaches(inference::WeightSource source) { return source == inference::WeightSource::remote; }
  std::string* calls;
  const bool* lent;
  std::int64_t version = -1;

  sync::Published publish(std::int64_t next) {
    if (next == version) return {.version = version};
    *calls += *lent ? "push " : "nothing ";
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

TEST_CASE("weights are borrowed for the publishes that send some, and for no other") {
  std::string calls;
  bool lent = false;
  sync::LentWeights sync(Server{&calls, &lent}, [&](const std::function<void()>& use) {
    calls += "borrow ";
    lent = true;
    const struct End {
      bool& lent;
      ~End() { lent = false; }
    } end{lent};
    use();
    calls += "return ";
  });
  static_assert(decltype(sync)::reaches(inference::WeightSource::remote));
  static_assert(!decltype(sync)::reaches(inference::WeightSource::shared));
  CHECK(sync.publish(1).status == sync::Published::Status::sent);
  CHECK(calls == "borrow push return ");
  CHECK(sync.publish(1).status == sync::Published::Status::unchanged);
  CHECK(calls == "borrow push return ");
  sync.forget();
  CHECK(sync.publish(1).bytes == 4);
  CHECK(calls == "borrow push return borrow push return ");
  CHECK(sync.version_source()() == 1);
  CHECK_THROWS_AS(sync.publish(13), std::runtime_error);
  CHECK_FALSE(lent);
  CHECK(sync.version_source()() == 1);
}
