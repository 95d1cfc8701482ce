#include <rlalgo/serve/fair_queue.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <support/catch.hpp>

using rlalgo::serve::FairQueue;

namespace {

std::vector<std::uint64_t> rest(FairQueue& turns) {
  std::vector<std::uint64_t> out;
  while (!turns.empty()) out.push_back(turns.pop());
  return out;
}

}  // namespace

TEST_CASE("clients take turns, and each one's work does") {
  FairQueue turns;
  CHECK(turns.empty());
  for (std::uint64_t i = 0; i < 4; ++i) turns.push("many", i);
  turns.push("one", 10);
  turns.push("two", 20);
  turns.push("two", 21);
  CHECK(rest(turns) == std::vector<std::uint64_t>{0, 10, 20, 1, 21, 2, 3});
  CHECK(turns.empty());
}

TEST_CASE("what is pushed again goes behind its client's other work, and a client that comes back behind the others") {
  FairQueue turns;
  turns.push("a", 1);
  turns.push("a", 2);
  turns.push("b", 3);
  CHECK(turns.pop() == 1);
  turns.push("a", 1);
  CHECK(turns.pop() == 3);
  turns.push("b", 3);
  CHECK(rest(turns) == std::vector<std::uint64_t>{2, 3, 1});
}
