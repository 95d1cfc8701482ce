#include <support/catch.hpp>

#include <memory>

#include <rlalgo/assembly/drawer.hpp>

using namespace rlalgo;

namespace {

struct Fixed {
  static constexpr bool serves = false;
  template <bool asynchronous, class Use>
  void open(const assembly::Opening&, Use&& use) const {
    use(assembly::Drawn<int, int>{.generator = std::make_shared<int>(1), .sync = 2});
  }
};

}  // namespace

TEST_CASE("who draws says whether it serves, and opens") {
  STATIC_REQUIRE(assembly::Drawer<Fixed>);
  STATIC_REQUIRE_FALSE(assembly::Drawer<int>);
  const assembly::Drawn<int, int> drawn{.generator = nullptr, .sync = 0};
  CHECK(drawn.gate != nullptr);
  CHECK(drawn.address.empty());
}
