#include <rlalgo/serve/repeatable_draws.hpp>

#include <set>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("what a prompt gets is a function of the seed, the weights and how often it was asked") {
  const std::vector<data::TokenId> a = {1, 2, 3}, b = {1, 2, 4}, none;
  serve::RepeatableDraws draws, again;
  std::vector<std::uint64_t> of_a;
  for (int k = 0; k < 3; ++k) of_a.push_back(draws.next(42, "0", a).seed);
  const auto of_b = draws.next(42, "0", b).seed, of_none = draws.next(42, "0", none).seed;
  CHECK(draws.next(42, "0", none).step == 1);
  // whatever comes between
  CHECK(again.next(42, "0", b).seed == of_b);
  for (int k = 0; k < 3; ++k) {
    CHECK(again.next(42, "0", a).seed == of_a[static_cast<std::size_t>(k)]);
    (void)again.next(42, "0", {});
  }
  std::set<std::uint64_t> all(of_a.begin(), of_a.end());
  all.insert({of_b, of_none, draws.next(43, "0", a).seed, draws.next(42, "1", a).seed, draws.next(42, "10", a).seed});
  CHECK(all.size() == 8);
  // under new weights it begins anew
  serve::RepeatableDraws third;
  CHECK(third.next(42, "1", a).seed == again.next(42, "1", a).seed);
}
