#include <rlalgo/core/compiled.hpp>

#include <string>

#include <support/catch.hpp>

namespace {

struct Declared {
  static int answer();
};
RLALGO_INLINE int Declared::answer() { return 42; }

#define RLALGO_TEXT(...) #__VA_ARGS__
#define RLALGO_EXPANDED(...) RLALGO_TEXT(__VA_ARGS__)

}  // namespace

TEST_CASE("RLALGO_INLINE is inline where headers define, and nothing where rlalgo::compiled does") {
  CHECK(Declared::answer() == 42);
#ifdef RLALGO_COMPILED
  CHECK(std::string(RLALGO_EXPANDED(RLALGO_INLINE)).empty());
#else
  CHECK(std::string(RLALGO_EXPANDED(RLALGO_INLINE)) == "inline");
#endif
}
