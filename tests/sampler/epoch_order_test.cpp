#include <rlalgo/sampler/epoch_order.hpp>

#include <algorithm>
#include <random>

#include <support/catch.hpp>

using namespace rlalgo;
using sampler::EpochOrder;

namespace {

std::vector<std::size_t> step(EpochOrder& order, std::int64_t number) {
  const auto examples = order.step(number);
  return {examples.begin(), examples.end()};
}

}  // namespace

TEST_CASE("the last step of an epoch takes what is left") {
  EpochOrder order({.examples = 7, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .shuffle = false});
  CHECK(order.steps() == 2);
  CHECK(step(order, 0) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(step(order, 1) == std::vector<std::size_t>{4, 5, 6});
  CHECK(step(order, 2) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(order.last_step_share() == 1.0);  // the last micro-batch is short, and counts
  CHECK(EpochOrder({.examples = 5, .micro_batch_size = 2, .gradient_accumulation_steps = 2}).last_step_share() == 0.5);
  EpochOrder few({.examples = 1, .micro_batch_size = 4, .shuffle = false});
  CHECK(few.steps() == 1);
  CHECK(step(few, 5) == std::vector<std::size_t>{0});
  EpochOrder even({.examples = 8, .micro_batch_size = 4});
  CHECK(even.steps() == 2);
  CHECK(step(even, 1).size() == 4);
}

TEST_CASE("every epoch has all examples, in an order drawn from seed + epoch") {
  EpochOrder order({.examples = 5, .micro_batch_size = 5, .seed = 3}),
      later({.examples = 5, .micro_batch_size = 5, .seed = 4});
  const auto first = step(order, 0), second = step(order, 1);
  CHECK(std::is_permutation(first.begin(), first.end(), second.begin()));
  CHECK(first != second);
  CHECK(step(later, 0) == second);
  CHECK(step(order, 0) == first);  // a step may be asked again
  std::mt19937 generator(3);
  CHECK(first == core::permutation(5, generator));
}

TEST_CASE("impossible orders") {
  CHECK_THROWS_WITH(EpochOrder({.examples = 0}), Catch::StartsWith("[rlalgo.sampler.20]"));
  CHECK_THROWS_WITH(EpochOrder({.examples = 1, .micro_batch_size = 0}), Catch::StartsWith("[rlalgo.sampler.20]"));
  CHECK_THROWS_WITH(EpochOrder({.examples = 1, .gradient_accumulation_steps = 0}), Catch::Contains("micro-batches"));
}
