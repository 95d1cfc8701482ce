#include <algorithm>
#include <set>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/repeat_order.hpp>

using rlalgo::sampler::RepeatOrder;
using Indices = std::vector<std::size_t>;

TEST_CASE("TRL's index stream: n 7, groups of 2, chunks of 3, repeated twice, not shuffled") {
  const RepeatOrder order({.prompts = 7, .prompts_per_chunk = 3, .copies = 2, .repeats = 2, .shuffle = false});
  CHECK(order.length() == 24);
  Indices stream;
  for (std::size_t i = 0; i < order.length(); ++i) stream.push_back(order.index(i));
  CHECK(stream == Indices{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 3, 3, 4, 4, 5, 5});
  CHECK(order.index(24) == 0);  // the next epoch
}

TEST_CASE("epochs are successive permutations of torch's generator seeded once") {
  // torch.manual_seed on a private generator with 42: three times torch.randperm(10)
  const RepeatOrder order({.prompts = 10, .prompts_per_chunk = 10, .seed = 42});
  CHECK(order.chunk(0) == Indices{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
  CHECK(order.chunk(1) == Indices{3, 5, 8, 9, 4, 6, 1, 0, 7, 2});
  CHECK(order.chunk(2) == Indices{7, 5, 0, 3, 1, 6, 9, 8, 4, 2});
}

TEST_CASE("an incomplete last chunk is dropped, and another prompt is dropped in another epoch") {
  const RepeatOrder order({.prompts = 7, .prompts_per_chunk = 2, .seed = 3});
  CHECK(order.chunks_per_epoch() == 3);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::size_t> seen;
    for (std::size_t c = 0; c < 3; ++c)
      for (const std::size_t i : order.chunk(epoch * 3 + c)) CHECK(seen.insert(i).second);
    CHECK(seen.size() == 6);
  }
}

TEST_CASE("chunks are the same in whatever order they are asked for") {
  const RepeatOrder::Config config{.prompts = 13, .prompts_per_chunk = 4, .seed = 11};
  const RepeatOrder forward(config), backward(config);
  std::vector<Indices> a, b;
  for (std::size_t c = 0; c < 12; ++c) a.push_back(forward.chunk(c));
  for (std::size_t c = 12; c-- > 0;) b.push_back(backward.chunk(c));
  std::reverse(b.begin(), b.end());
  CHECK(a == b);
  CHECK(a[0] != RepeatOrder({.prompts = 13, .prompts_per_chunk = 4, .seed = 12}).chunk(0));
}

TEST_CASE("a dataset smaller than one generation is an error") {
  CHECK_THROWS_WITH(RepeatOrder({.prompts = 3, .prompts_per_chunk = 4}),
                    Catch::Contains("[rlalgo.sampler.1]") && Catch::Contains("found 3 prompts, expected at least 4"));
}
