#include <support/catch.hpp>

#include <algorithm>

#include <rlalgo/core/permutation.hpp>

using rlalgo::core::permutation;

// Expected orders printed by torch 2.11: torch.randperm(n, generator=torch.Generator().manual_seed(seed)).
TEST_CASE("order equals torch.randperm, and successive calls are successive epochs") {
  std::mt19937 generator(42);
  CHECK(permutation(10, generator) == std::vector<std::size_t>{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
  CHECK(permutation(10, generator) == std::vector<std::size_t>{3, 5, 8, 9, 4, 6, 1, 0, 7, 2});
  std::mt19937 other(7);
  const auto order = permutation(1000, other);
  CHECK(std::vector<std::size_t>(order.begin(), order.begin() + 6) ==
        std::vector<std::size_t>{615, 284, 599, 580, 347, 92});
}

TEST_CASE("every index appears once; zero and one element are fine") {
  std::mt19937 generator(1);
  auto order = permutation(257, generator);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == i);
  CHECK(permutation(0, generator).empty());
  CHECK(permutation(1, generator) == std::vector<std::size_t>{0});
}
