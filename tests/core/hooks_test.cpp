#include <rlalgo/core/hooks.hpp>

#include <support/catch.hpp>

namespace {

struct Hooks {
  bool grow = false, shrink = false;
};

template <class Part>
constexpr Hooks hooks_of() {
  constexpr Hooks declared = rlalgo::core::declared_hooks<Part, Hooks>();
  RLALGO_HOOK(
      grow, requires(Part & part) { part.grow(); });
  RLALGO_HOOK(
      shrink, requires(Part & part) { part.shrink(); });
  return declared;
}

struct Plain {};
struct Growing {
  static constexpr Hooks hooks{.grow = true};
  void grow() {}
};
// What a base declares, a derived part has.
struct Derived : Growing {};

}  // namespace

// Parts of which one name is wrong: tests/compile_fail/misspelt_hook*.cpp.
TEST_CASE("a part has the hooks that it declares, and none without a declaration") {
  STATIC_REQUIRE_FALSE(hooks_of<Plain>().grow);
  STATIC_REQUIRE(hooks_of<Growing>().grow);
  STATIC_REQUIRE_FALSE(hooks_of<Growing>().shrink);
  STATIC_REQUIRE(hooks_of<Derived>().grow);
}
