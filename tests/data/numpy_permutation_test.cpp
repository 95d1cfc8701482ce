#include <support/catch.hpp>

#include <cstdint>
#include <vector>

#include <rlalgo/data/numpy_permutation.hpp>

using rlalgo::data::numpy_permutation;

// Expected values: scripts/fixtures/config_permutation.py (NumPy 2.4).
TEST_CASE("permutations are those of numpy.random.default_rng") {
  struct Case {
    std::uint64_t seed;
    std::vector<std::size_t> order;
  };
  const std::vector<Case> cases = {{42, {15, 9, 14, 7, 12, 10, 6, 19, 3, 0, 16, 5, 11, 18, 2, 4, 17, 1, 13, 8}},
                                   {0, {2, 11, 3, 10, 0, 4, 7, 5, 14, 12, 6, 9, 13, 8, 1, 15}},
                                   {1099511627783, {6, 2, 8, 7, 9, 3, 4, 1, 5, 0}},  // a seed of two 32-bit words
                                   {7, {0}},
                                   {3, {1, 0}},
                                   {7, {}}};
  for (const Case& c : cases) CHECK(numpy_permutation(c.order.size(), c.seed) == c.order);
}

TEST_CASE("long permutations agree in every place") {
  const auto folded = [](std::uint64_t seed, std::size_t n) {
    std::uint64_t h = 0;
    for (const std::size_t i : numpy_permutation(n, seed)) h = h * 1000003 + i;
    return h;
  };
  CHECK(folded(42, 7473) == 14365377982316320184ULL);
  CHECK(folded(1, 100000) == 14818798437728488512ULL);
}
